import { Worker } from 'bullmq';
import { concurrency, deliver } from './work.js';

const worker = new Worker('deliver', ({ data }) => deliver(data.id), {
  connection: { host: '127.0.0.1', port: Number(process.env.REDIS_PORT), maxRetriesPerRequest: null },
  concurrency,
  removeOnComplete: { count: 0 },
});
worker.on('error', (error) => console.error(error));
