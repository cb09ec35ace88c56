/**
 * The real sender, allowed to reach the receivers of a test.
 */
import type { Message } from '../../src/delivery/send.ts';
import { createSender, type Send, type SenderOptions } from '../../src/delivery/send.ts';
import { parseCidr } from '../../src/domain/public-address.ts';

/** Of messages that prove themselves with what is never revoked, unless told otherwise. */
export type TestSend = (...args: [Message, AbortSignal, Parameters<Send>[2]?]) => ReturnType<Send>;
type TestSender = { send: TestSend; [Symbol.asyncDispose](): Promise<void> };

/** What every message of `messageTo` carries. */
export const SENT_KEY = 'wk_live_0123456789_abcdefghijklmnopqrstuvwxyz';

export function messageTo(url: string, id = 7): Message {
  const headers = {
    'content-type': 'application/json',
    authorization: `Bearer ${SENT_KEY}`,
    'webhook-id': String(id),
  };
  return { url, headers, body: `{"id":${id}}` };
}

/** A sender that may reach these receivers on loopback. */
export function openSender(
  receivers: readonly { port: number }[],
  options: Partial<SenderOptions> = {},
): TestSender {
  const ports = receivers.map(({ port }) => port);
  const policy = { allowHttp: true, allowCidrs: [parseCidr('127.0.0.0/8')], ports };
  const sender = createSender({ policy, ...options });
  return {
    send: (message, signal, renewal = { isFresh: () => true, renew: async () => message }) =>
      sender.send(message, signal, renewal),
    [Symbol.asyncDispose]: sender.close,
  };
}
