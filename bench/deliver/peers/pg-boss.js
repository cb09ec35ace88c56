import { PgBoss } from 'pg-boss';
import { databaseUrl, deliver } from './work.js';

/** pg-boss polls at most twice a second, so smaller batches would wait. The connections limit concurrent requests. */
const BATCH = 2_000;

const boss = new PgBoss({ connectionString: databaseUrl, max: 20, supervise: false, schedule: false });
boss.on('error', (error) => console.error(error));
await boss.start();
// One statement fetches a batch and one completes it; its jobs run concurrently.
await boss.work('deliver', { batchSize: BATCH, pollingIntervalSeconds: 0.5 }, (jobs) =>
  Promise.all(jobs.map(({ data }) => deliver(data.id))),
);
