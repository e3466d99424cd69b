// Records that go to a broker and come back as they were, and topics as the admin client sees them.
'use strict';

const { CompressionTypes, ConfigResourceTypes } = require('kafkajs');
const { using, createTopic, until, read } = require('./common');

const PARTITIONS = 3;
const RECORDS = 300;
const STEADY_BATCH = 2;
const PATIENT = { initialRetryTime: 100, maxRetryTime: 1000, retries: 60 };
const codecs = { none: CompressionTypes.None, gzip: CompressionTypes.GZIP };

async function roundTrip(kafka, { topic, codec }) {
  await createTopic(kafka, topic, PARTITIONS);
  const messages = Array.from({ length: RECORDS }, (_, i) => ({
    partition: i % PARTITIONS,
    key: i % 10 === 0 ? null : `key-${i % 7}`,
    value: i % 11 === 0 ? null : `välue-${i}${'x'.repeat(i)}`,
    headers: { n: String(i) },
  }));
  const ends = await using(kafka.producer({ idempotent: true }), (producer) =>
    producer.send({ topic, messages, compression: codecs[codec], acks: -1 }));
  return {
    baseOffsets: ends.map((each) => each.baseOffset),
    sent: messages.map(({ partition, key, value, headers }) => ({ partition, key, value, header: headers.n })),
    received: await read(kafka, topic, RECORDS),
  };
}

// Sends records in small batches to one partition after the other, each batch when the one before is acknowledged. A
// call of KafkaJS must not name partitions of several leaders for this: if one of them dies, and another that has answered
// takes over, the call returns without having written what was for the dead one.
async function steadyWrites(kafka, { topic, records }) {
  await createTopic(kafka, topic, PARTITIONS);
  return using(kafka.producer({ idempotent: true, maxInFlightRequests: 1, retry: PATIENT }), async (producer) => {
    for (let sent = 0; sent < records; sent += PARTITIONS * STEADY_BATCH) {
      for (let partition = 0; partition < PARTITIONS; partition += 1) {
        const messages = [];
        for (let i = sent + partition; messages.length < STEADY_BATCH && i < records; i += PARTITIONS) {
          messages.push({ partition, value: `value-${i}` });
        }
        await producer.send({ topic, messages, acks: -1 });
      }
    }
    return records;
  });
}

async function topic(kafka, { topic }) {
  return using(kafka.admin(), async (admin) => {
    await admin.createTopics({ topics: [{ topic, numPartitions: 2 }], waitForLeaders: true });
    const again = await admin.createTopics({ topics: [{ topic, numPartitions: 2 }] });
    await admin.createPartitions({ topicPartitions: [{ topic, count: 3 }] });
    const described = await admin.fetchTopicMetadata({ topics: [topic] });
    const resource = { type: ConfigResourceTypes.TOPIC, name: topic };
    await admin.alterConfigs({
      validateOnly: false,
      resources: [{ ...resource, configEntries: [{ name: 'retention.ms', value: '3600000' }] }],
    });
    const configs = await admin.describeConfigs({
      includeSynonyms: false,
      resources: [{ ...resource, configNames: ['retention.ms'] }],
    });
    const offsets = await admin.fetchTopicOffsets(topic);
    await admin.deleteTopics({ topics: [topic] });
    await until('the topic is gone', async () => !(await admin.listTopics()).includes(topic));
    return {
      again,
      partitions: described.topics[0].partitions.length,
      retention: configs.resources[0].configEntries[0].configValue,
      ends: offsets.map((each) => each.high),
    };
  });
}

module.exports = { 'round-trip': roundTrip, 'steady-writes': steadyWrites, topic };
