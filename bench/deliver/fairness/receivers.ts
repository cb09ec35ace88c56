/**
 * The program with the receivers of the fairness scenarios. It listens on all addresses, so each address of 127.0.0.0/8 is a
 * separate receiver. It responds with 204 after a delay, or never. Its parent reads the receipts over the IPC channel.
 */
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';

/** Requests are answered after a random time in this range, or never. */
export type Manner = { fromMs: number; toMs: number } | 'never';
/** `manner` applies from now on; `keeps` sets whether receipts are kept. */
export type Question = { id: number; manner?: Manner; keeps?: boolean };
/** One received request. Times are milliseconds since 1970; `createdAtMs` is the body's `timestamp`. */
export type Receipt = { hash: string; atMs: number; createdAtMs: number };
/** Counts since the last question, except `requests`, which counts from the start. */
export type Reply = {
  id: number;
  receipts: Receipt[];
  requests: number;
  openCount: number;
  openPeak: number;
};

/** Each hanging request holds a connection, and many of them arrive at the same time. */
const BACKLOG = 8_192;
let manner: Manner = { fromMs: 5, toMs: 20 };
let keeps = false;
let receipts: Receipt[] = [];
let requests = 0;
let openCount = 0;
let openPeak = 0;

function onRequest(request: IncomingMessage, response: ServerResponse): void {
  const atMs = Date.now();
  requests += 1;
  let body = '';
  request.setEncoding('latin1').on('data', (text: string) => {
    if (keeps) body += text;
  });
  request.on('end', () => {
    if (keeps) receipts.push(receiptOf(body, atMs));
    if (manner === 'never') return;
    const { fromMs, toMs } = manner;
    setTimeout(() => response.writeHead(204).end(), fromMs + Math.random() * (toMs - fromMs));
  });
  // Expected: the service closes the connection when it gives up on an attempt.
  request.on('error', () => {});
}

function receiptOf(body: string, atMs: number): Receipt {
  const { hash, timestamp }: { hash: string; timestamp: string } = JSON.parse(body);
  return { hash, atMs, createdAtMs: Date.parse(`${timestamp.replace(' ', 'T')}Z`) };
}

const server = createServer({ keepAliveTimeout: 60_000, requestTimeout: 0 }, onRequest);
server.on('connection', (socket) => {
  openCount += 1;
  openPeak = Math.max(openPeak, openCount);
  socket.on('close', () => {
    openCount -= 1;
  });
});
process.on('message', (question: Question) => {
  manner = question.manner ?? manner;
  keeps = question.keeps ?? keeps;
  const reply: Reply = { id: question.id, receipts, requests, openCount, openPeak };
  process.send?.(reply);
  receipts = [];
  openPeak = openCount;
});
process.on('disconnect', () => process.exit());
server.listen({ port: 0, host: '0.0.0.0', backlog: BACKLOG }, () => {
  const address = server.address();
  process.stdout.write(`${typeof address === 'object' && address !== null ? address.port : 0}\n`);
});
