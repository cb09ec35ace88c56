import { PgBoss } from 'pg-boss';
import { databaseUrl, deliver } from './work.js';

/** It asks for jobs twice a second at most: smaller batches would wait for that; the connections bound what goes out at once. */
const BATCH = 2_000;

const boss = new PgBoss({ connectionString: databaseUrl, max: 20, supervise: false, schedule: false });
boss.on('error', (error) => console.error(error));
await boss.start();
// A batch is fetched and completed in one statement each; its jobs run beside one another.
await boss.work('deliver', { batchSize: BATCH, pollingIntervalSeconds: 0.5 }, (jobs) =>
  Promise.all(jobs.map(({ data }) => deliver(data.id))),
);
