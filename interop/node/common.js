// What scenarios share: clients that are closed at the end, and waiting for what comes about in time.
'use strict';

const DEADLINE_MS = 60_000;

async function using(client, work) {
  await client.connect();
  try {
    return await work(client);
  } finally {
    await client.disconnect();
  }
}

function createTopic(kafka, topic, numPartitions) {
  return using(kafka.admin(), (admin) =>
    admin.createTopics({ topics: [{ topic, numPartitions }], waitForLeaders: true }));
}

async function until(what, condition) {
  const deadline = Date.now() + DEADLINE_MS;
  while (!(await condition())) {
    if (Date.now() > deadline) throw new Error(`in ${DEADLINE_MS} ms it did not come about that ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

// Reads this many records with a group of its own, in the order of partitions and offsets.
function read(kafka, topic, count, readUncommitted = false) {
  const consumer = kafka.consumer({ groupId: `${topic}-read-${readUncommitted}`, readUncommitted });
  return using(consumer, async () => {
    const records = [];
    await consumer.subscribe({ topic, fromBeginning: true });
    await consumer.run({
      eachMessage: async ({ partition, message }) => {
        const header = message.headers?.n?.toString() ?? null;
        const [key, value] = [message.key, message.value].map((each) => each?.toString() ?? null);
        records.push({ partition, offset: Number(message.offset), key, value, header });
      },
    });
    await until(`${count} records were read from ${topic}`, () => records.length >= count);
    return records.sort((a, b) => a.partition - b.partition || a.offset - b.offset);
  });
}

module.exports = { using, createTopic, until, read };
