/**
 * Responses in the form of spec 7 to errors that Node's HTTP server finds before Fastify has a request.
 */
import { type IncomingMessage, type ServerResponse, STATUS_CODES } from 'node:http';
import type { Socket } from 'node:net';
import { bodyOf } from './errors.ts';
import { errorHeadersOf } from './shared-headers.ts';

/** The status for errors of Node's parser and timers. All others are 400. */
const STATUS_OF: Readonly<Record<string, number>> = {
  ERR_HTTP_REQUEST_TIMEOUT: 408,
  HPE_HEADER_OVERFLOW: 431,
};
const MESSAGE_OF: Readonly<Record<number, string>> = {
  400: 'Invalid request: it is not valid HTTP (RFC 9112)',
  405: 'CONNECT is not allowed here',
  408: 'Request Timeout: the request did not arrive in time',
  417: 'Expectation Failed: only 100-continue is supported',
  431: 'Request Header Fields Too Large',
};

/** Every path of the API is shorter. */
const LINE_BYTES_MAX = 4_096;

/** Handles Node's `clientError`: responds if no response has begun, and ends the connection. */
export function answerClientError(error: Error, socket: Socket): void {
  const code: unknown = Reflect.get(error, 'code');
  // After a reset, or in the middle of a response, no error response can be sent.
  if (code === 'ECONNRESET' || !socket.writable || isAnswering(socket)) {
    socket.destroy();
    return;
  }
  // The last packet may hold the request line.
  const packet: unknown = Reflect.get(error, 'rawPacket');
  const text = Buffer.isBuffer(packet) ? packet.subarray(0, LINE_BYTES_MAX).toString('latin1') : '';
  answerSocket(socket, STATUS_OF[String(code)] ?? 400, /^[A-Z]+ (\S+)/.exec(text)?.[1] ?? '');
}

/** Handles Node's `connect`: a request for a tunnel. */
export function answerConnect(_request: IncomingMessage, socket: Socket): void {
  socket.on('error', () => socket.destroy());
  answerSocket(socket, 405, '', { allow: 'GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS' });
}

/** Handles Node's `checkExpectation`: an `expect` header other than `100-continue`. */
export function answerExpectation({ url = '' }: IncomingMessage, response: ServerResponse): void {
  const { body, headers } = answerOf(417, url);
  response.writeHead(417, headers).end(body);
}

function answerSocket(
  socket: Socket,
  statusCode: number,
  url: string,
  more: Record<string, string> = {},
): void {
  const { body, headers } = answerOf(statusCode, url);
  const lines = Object.entries({ ...headers, ...more }).map(([name, value]) => `${name}: ${value}\r\n`);
  socket.end(`HTTP/1.1 ${statusCode} ${STATUS_CODES[statusCode]}\r\n${lines.join('')}\r\n${body}`);
  socket.destroySoon();
}

function answerOf(statusCode: number, url: string) {
  const statusMessage = MESSAGE_OF[statusCode] ?? STATUS_CODES[statusCode] ?? '';
  const body = JSON.stringify(bodyOf({ statusCode, statusMessage }, url));
  const headers: Record<string, string> = {
    'content-type': 'application/json; charset=utf-8',
    'content-length': String(Buffer.byteLength(body)),
    connection: 'close',
    ...errorHeadersOf(url),
  };
  return { body, headers };
}

/** Node keeps the response under way in a private field of the socket and has no public way to find it. */
function isAnswering(socket: Socket): boolean {
  const message: unknown = Reflect.get(socket, '_httpMessage');
  return typeof message === 'object' && message !== null && Reflect.get(message, 'headersSent') === true;
}
