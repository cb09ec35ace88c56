/**
 * An HTTP client in a separate thread, so that reading a response delays no other measurement. A message holds the URL; the
 * reply is a Reading or an error.
 */
import { Agent, request } from 'node:http';
import { parentPort } from 'node:worker_threads';

/** Milliseconds from sending the request to the first and to the last byte of the body. */
export type Reading = { status: number; bytes: number; firstByteMs: number; ms: number };

const agent = new Agent({ keepAlive: true });

parentPort?.on('message', (url: string) => {
  read(url).then(
    (reading) => parentPort?.postMessage(reading),
    (error: unknown) => parentPort?.postMessage(String(error)),
  );
});

function read(url: string): Promise<Reading> {
  return new Promise((resolve, reject) => {
    const startedAt = performance.now();
    const sinceStart = () => Number((performance.now() - startedAt).toFixed(2));
    request(url, { agent }, (response) => {
      const reading = { status: response.statusCode ?? 0, bytes: 0, firstByteMs: 0, ms: 0 };
      response.on('data', (chunk: Buffer) => {
        if (reading.bytes === 0) reading.firstByteMs = sinceStart();
        reading.bytes += chunk.length;
      });
      response.on('end', () => resolve({ ...reading, ms: sinceStart() }));
      response.on('error', reject);
    })
      .on('error', reject)
      .end();
  });
}
