/**
 * Made by `npm run generate` from bench/results: the measured unit costs of the capacity model. Not to be edited.
 */
export const unitCosts = {
  machine: { processor: 'AMD EPYC', cores: 2, memoryGiB: 24, load: 4.5 },
  /** Processor time of the service for a block, in microseconds. */
  blockService: { value: 2181.9, file: 'capacity', commit: '0562364736e7' },
  /** Processor time of PostgreSQL for a block, in microseconds. */
  blockDatabase: { value: 321.1, file: 'capacity', commit: '0562364736e7' },
  /** Processor time of the service for a transaction in a block, in microseconds. */
  transactionService: { value: 113.5, file: 'capacity', commit: '0562364736e7' },
  /** Processor time of PostgreSQL for a transaction in a block, in microseconds. */
  transactionDatabase: { value: 13.8, file: 'capacity', commit: '0562364736e7' },
  /** Processor time of PostgreSQL to store a notification, in microseconds. */
  commitDatabase: { value: 90.3, file: 'capacity', commit: '0562364736e7' },
  /** Processor time of PostgreSQL to lease, read and settle a webhook, in microseconds. */
  settleDatabase: { value: 33.5, file: 'capacity', commit: '0562364736e7' },
  /** Processor time to add an attempt up for statistics, in microseconds. */
  statisticsProcessor: { value: 53.6, file: 'statistics', commit: 'f309db09d50c' },
  /** Processor time of a process for a webhook over HTTP, in microseconds. */
  deliveryService: { value: 234.5, file: 'deliver', commit: '94689781c364' },
  /** Processor time of a process for a cached API response of 56 bytes, in microseconds. */
  cachedReadService: { value: 16.98, file: 'api', commit: '2cc8b3c52814' },
  /** Notifications per second that one connection commits. */
  commits: { value: 15740, file: 'storage', commit: 'd1b6fdb60b13' },
  /** Webhooks per second that one process sends over HTTP. */
  processDeliveries: { value: 5258, file: 'deliver', commit: '94689781c364' },
  /** Cached API responses per second of one process. */
  processReads: { value: 60320, file: 'api', commit: '2cc8b3c52814' },
  /** Blocks with one webhook each per second with the embedded database. */
  embeddedBlocks: { value: 101, file: 'memory-embedded', commit: 'ed116ccff382' },
  /** Bytes of WAL of a delivery, with page images. */
  wal: { value: 1260, file: 'storage', commit: 'd1b6fdb60b13' },
  /** Bytes of a notification with its indexes. */
  notificationBytes: { value: 332.6, file: 'capacity', commit: '0562364736e7' },
  /** Bytes of an attempt with its indexes. */
  attemptBytes: { value: 171.4, file: 'capacity', commit: '0562364736e7' },
  /** Bytes of a watched address with its indexes. */
  addressBytes: { value: 316.5, file: 'capacity', commit: '0562364736e7' },
  /** Bytes of a watched address in the follower's address filter. */
  filterBytes: { value: 1.51, file: 'filter', commit: '5693ed2da186' },
  /** Resident memory of a process, in MiB. */
  processMemory: { value: 189.5, file: 'capacity', commit: '0562364736e7' },
  /** Memory of a delivery queue that sent just now, in KiB. */
  queueMemory: { value: 26.3, file: 'capacity', commit: '0562364736e7' },
  /** Open connections to a receiver that answers. */
  receiverSockets: { value: 1, file: 'capacity', commit: '0562364736e7' },
} as const;
