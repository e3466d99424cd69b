// Scenarios of KafkaJS. A line of JSON on standard input names one and its arguments; a line of JSON on standard
// output tells what it found out, or why it failed. The only argument is the bootstrap address.
'use strict';

const readline = require('node:readline');
const { Kafka, logLevel } = require('kafkajs');

const scenarios = {
  ...require('./roundtrips'),
  ...require('./groups'),
  ...require('./transactions'),
};

const kafka = new Kafka({
  clientId: 'interop',
  brokers: process.argv[2].split(','),
  logLevel: logLevel.WARN,
  logCreator: () => ({ log }) => process.stderr.write(`${JSON.stringify(log)}\n`),
});

async function answer(request) {
  try {
    return { result: await scenarios[request.scenario](kafka, request) };
  } catch (error) {
    return { error: error.stack };
  }
}

async function main() {
  for await (const line of readline.createInterface({ input: process.stdin })) {
    process.stdout.write(`${JSON.stringify(await answer(JSON.parse(line)))}\n`);
  }
}

main();
