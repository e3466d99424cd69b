// Consumer groups of KafkaJS, which knows the classic protocol.
'use strict';

const { using, createTopic, until } = require('./common');

const PARTITIONS = 4;

// A member that tells what it owns and what it received.
async function join(kafka, topic, groupId) {
  const consumer = kafka.consumer({ groupId, heartbeatInterval: 300 });
  const member = { owned: [], received: [], leave: () => consumer.disconnect() };
  consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
    member.owned = payload.memberAssignment[topic] ?? [];
  });
  await consumer.connect();
  await consumer.subscribe({ topic, fromBeginning: true });
  await consumer.run({
    eachMessage: async ({ partition, message }) => {
      member.received.push(`${partition}@${message.offset}`);
    },
  });
  return member;
}

async function fill(kafka, topic) {
  const messages = Array.from({ length: PARTITIONS }, (_, partition) => ({ partition, value: 'value' }));
  await using(kafka.producer(), (producer) => producer.send({ topic, messages }));
}

async function group(kafka, { topic, group: groupId }) {
  await createTopic(kafka, topic, PARTITIONS);
  const first = await join(kafka, topic, groupId);
  const second = await join(kafka, topic, groupId);
  const members = [first, second];
  const received = () => members.flatMap((each) => each.received).sort();
  try {
    await until('both own half', () => members.every((each) => each.owned.length === PARTITIONS / 2));
    const shared = members.map((each) => each.owned);
    await fill(kafka, topic);
    await until('each partition was read', () => received().length >= PARTITIONS);
    const described = await using(kafka.admin(), (admin) => admin.describeGroups([groupId]));
    await first.leave();
    await until('one owns everything', () => second.owned.length === PARTITIONS);
    await fill(kafka, topic);
    await until('each partition was read again', () => received().length >= 2 * PARTITIONS);
    const { state, members: told } = described.groups[0];
    return { shared, state, members: told.length, received: received() };
  } finally {
    await Promise.all(members.map((each) => each.leave()));
  }
}

// Offsets that the admin client sets, resets and reads, of a group that it then deletes.
async function offsets(kafka, { topic, group: groupId }) {
  await createTopic(kafka, topic, PARTITIONS);
  await fill(kafka, topic);
  return using(kafka.admin(), async (admin) => {
    const places = async () => {
      const [{ partitions }] = await admin.fetchOffsets({ groupId, topics: [topic] });
      return partitions.sort((a, b) => a.partition - b.partition).map((each) => Number(each.offset));
    };
    await admin.setOffsets({ groupId, topic, partitions: [{ partition: 1, offset: '1' }] });
    const set = await places();
    await admin.resetOffsets({ groupId, topic, earliest: true });
    const reset = await places();
    const listed = (await admin.listGroups()).groups.some((each) => each.groupId === groupId);
    await admin.deleteGroups([groupId]);
    const deleted = !(await admin.listGroups()).groups.some((each) => each.groupId === groupId);
    return { set, reset, listed, deleted };
  });
}

module.exports = { group, offsets };
