import { run } from 'graphile-worker';
import { concurrency, databaseUrl, deliver } from './work.js';

const runner = await run({
  connectionString: databaseUrl,
  concurrency,
  maxPoolSize: 20,
  taskList: { deliver: ({ id }) => deliver(id) },
  preset: { worker: { localQueue: { size: 500 }, completeJobBatchDelay: 0, failJobBatchDelay: 0 } },
  noHandleSignals: true,
});
await runner.promise;
