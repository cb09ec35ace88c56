import { Worker } from 'bullmq';
import { Redis } from 'ioredis';
import { concurrency, deliver } from './work.js';

const worker = new Worker('deliver', ({ data }) => deliver(data.id), {
  connection: new Redis(Number(process.env.REDIS_PORT), '127.0.0.1', { maxRetriesPerRequest: null }),
  concurrency,
  removeOnComplete: { count: 0 },
});
worker.on('error', (error) => console.error(error));
