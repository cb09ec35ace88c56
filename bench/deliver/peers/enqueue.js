/**
 * Adds a job for each row to a queue before the measurement starts: `node enqueue.js <peer> <rows>`.
 */
import { Queue } from 'bullmq';
import { makeWorkerUtils } from 'graphile-worker';
import { Redis } from 'ioredis';
import { PgBoss } from 'pg-boss';

const [, , peer, rowCount] = process.argv;
const ids = Array.from({ length: Number(rowCount) }, (_, index) => index + 1);
const connectionString = process.env.DATABASE_URL;
const GROUP = 1_000;

async function inGroups(add) {
  for (let start = 0; start < ids.length; start += GROUP) await add(ids.slice(start, start + GROUP));
}

switch (peer) {
  case 'graphile-worker': {
    const utils = await makeWorkerUtils({ connectionString });
    await utils.migrate();
    await inGroups((group) => utils.addJobs(group.map((id) => ({ identifier: 'deliver', payload: { id } }))));
    await utils.release();
    break;
  }
  case 'pg-boss': {
    const boss = new PgBoss({ connectionString, supervise: false, schedule: false });
    await boss.start();
    await boss.createQueue('deliver');
    await inGroups((group) =>
      boss.insert(
        'deliver',
        group.map((id) => ({ data: { id } })),
      ),
    );
    await boss.stop({ graceful: false });
    break;
  }
  case 'bullmq': {
    const queue = new Queue('deliver', {
      connection: new Redis(Number(process.env.REDIS_PORT), '127.0.0.1'),
    });
    await inGroups((group) => queue.addBulk(group.map((id) => ({ name: 'deliver', data: { id } }))));
    await queue.close();
    break;
  }
  case 'undici':
    break;
  default:
    throw new Error(`no peer is called ${peer}`);
}
process.exit();
