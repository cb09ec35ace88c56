import type { StatusBody } from '../../src/api/ops/status-body.ts';

type List = 'write_failures' | 'failing_work' | 'lost_shards' | 'processes' | 'missing' | 'prices' | 'pairs';

/** /status of a process that can read its database, so that no list is unknown. */
export type KnownStatus = {
  [Field in keyof StatusBody]: Field extends List ? NonNullable<StatusBody[Field]> : StatusBody[Field];
};
