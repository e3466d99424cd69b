// Transactions of KafkaJS.
'use strict';

const { using, createTopic, read } = require('./common');

const values = (records) => records.map((each) => each.value);

const transactional = (kafka, transactionalId) =>
  kafka.producer({ transactionalId, idempotent: true, maxInFlightRequests: 1 });

async function commitAndAbort(kafka, { topic }) {
  await createTopic(kafka, topic, 1);
  await using(transactional(kafka, topic), async (producer) => {
    for (const [value, end] of [['first', 'commit'], ['aborted', 'abort'], ['last', 'commit']]) {
      const transaction = await producer.transaction();
      await transaction.send({ topic, messages: [{ value }] });
      await transaction[end]();
    }
  });
  return {
    committed: values(await read(kafka, topic, 2)),
    all: values(await read(kafka, topic, 3, true)),
  };
}

// Writes and commits a group's place in one transaction: one that is aborted, one that is committed.
async function sendOffsets(kafka, { topic, group: consumerGroupId }) {
  await createTopic(kafka, topic, 1);
  const places = [];
  await using(kafka.admin(), (admin) => using(transactional(kafka, topic), async (producer) => {
    for (const [offset, end] of [['5', 'abort'], ['7', 'commit']]) {
      const transaction = await producer.transaction();
      await transaction.send({ topic, messages: [{ value: end }] });
      await transaction.sendOffsets({ consumerGroupId, topics: [{ topic, partitions: [{ partition: 0, offset }] }] });
      await transaction[end]();
      const [{ partitions }] = await admin.fetchOffsets({ groupId: consumerGroupId, topics: [topic] });
      places.push(Number(partitions[0].offset));
    }
  }));
  return { places, written: values(await read(kafka, topic, 1)) };
}

async function zombie(kafka, { topic }) {
  await createTopic(kafka, topic, 1);
  return using(transactional(kafka, topic), async (old) => {
    const transaction = await old.transaction();
    await transaction.send({ topic, messages: [{ value: 'zombie' }] });
    await using(transactional(kafka, topic), async (successor) => {
      const taken = await successor.transaction();
      await taken.send({ topic, messages: [{ value: 'successor' }] });
      await taken.commit();
    });
    const refusal = await transaction.commit().then(() => 'none', (error) => error.type);
    return { refusal, committed: values(await read(kafka, topic, 1)) };
  });
}

module.exports = { 'commit-and-abort': commitAndAbort, 'send-offsets': sendOffsets, zombie };
