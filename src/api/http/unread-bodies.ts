/**
 * Bounds the memory of public bodies that clients are still reading. Such a body stays in memory after the cache has replaced it.
 */
import type { ServerResponse } from 'node:http';

/** As much as the cache, so that clients can read everything in it at once. */
export const UNREAD_BYTES_MAX = 256 * 1024 * 1024;

/** A body that any number of clients may read. It counts once. */
type Body = { readonly bytes: number };

/**
 * Returns a function that counts the body until the response has been sent or its connection has closed. Above the maximum, it closes
 * the connections of other clients, first those that have been reading longest.
 */
export function createUnreadBodies(bytesMax: number): (body: Body, response: ServerResponse) => void {
  /** The body of each response, the oldest first. */
  const reading = new Map<ServerResponse, Body>();
  const readerCounts = new Map<Body, number>();
  let bytes = 0;

  function release(response: ServerResponse): void {
    const body = reading.get(response);
    if (body === undefined) return;
    reading.delete(response);
    const left = (readerCounts.get(body) ?? 1) - 1;
    if (left > 0) {
      readerCounts.set(body, left);
      return;
    }
    readerCounts.delete(body);
    bytes -= body.bytes;
  }

  return (body, response) => {
    // A client that left while the body was made. Its `close` has been, so nothing would release the body.
    if (response.closed || response.req.socket.destroyed) return;
    const count = readerCounts.get(body) ?? 0;
    if (count === 0) bytes += body.bytes;
    readerCounts.set(body, count + 1);
    reading.set(response, body);
    response.once('close', () => release(response));
    for (const oldest of reading.keys()) {
      if (bytes <= bytesMax || oldest === response) return;
      oldest.req.socket.destroy();
      release(oldest);
    }
  };
}
