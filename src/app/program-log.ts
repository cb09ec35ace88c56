/**
 * The log of a process, with the secrets in the URLs of its nodes redacted.
 */
import type { Config } from '../config/schema.ts';
import { createLog, type Log, type LogOptions } from '../core/log.ts';
import { redactorOf } from '../core/redact.ts';

export function createProgramLog(
  config: Config,
  options: Partial<LogOptions> = {},
  terminal?: { write(text: string): void },
): Log {
  const redactors = config.chain.rpc.map(redactorOf);
  const hide = (text: string) => redactors.reduce((shown, redact) => redact(shown), text);
  return createLog({ ...config.log, ...options }, terminal, hide);
}
