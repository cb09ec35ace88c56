import { PgBoss } from 'pg-boss';
import { concurrency, databaseUrl, deliver } from './work.js';

const boss = new PgBoss({ connectionString: databaseUrl, max: 20, supervise: false, schedule: false });
boss.on('error', (error) => console.error(error));
await boss.start();
// A batch is fetched and completed in one statement each; its jobs run beside one another.
await boss.work('deliver', { batchSize: concurrency, pollingIntervalSeconds: 0.5 }, (jobs) =>
  Promise.all(jobs.map(({ data }) => deliver(data.id))),
);
