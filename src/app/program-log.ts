/**
 * The log of a process, without what only the URLs of its nodes should hold.
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
