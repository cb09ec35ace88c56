/**
 * The real sender, with permission to reach a test's receivers.
 */
import type { Message } from '../../src/delivery/send.ts';
import { createSender, type Send, type SenderOptions } from '../../src/delivery/send.ts';
import { parseCidr } from '../../src/domain/public-address.ts';

/** Sends messages whose keys are never revoked, by default. */
export type TestSend = (...args: [Message, AbortSignal, Parameters<Send>[2]?]) => ReturnType<Send>;
type TestSender = { send: TestSend; [Symbol.asyncDispose](): Promise<void> };

/** The API key in every message of `messageTo`. */
export const SENT_KEY = 'wk_live_0123456789_abcdefghijklmnopqrstuvwxyz';

export function messageTo(url: string, id = 7): Message {
  const headers = {
    'content-type': 'application/json',
    authorization: `Bearer ${SENT_KEY}`,
    'webhook-id': String(id),
  };
  return { url, headers, body: `{"id":${id}}` };
}

/** Opens a sender that may reach these receivers on loopback. */
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
