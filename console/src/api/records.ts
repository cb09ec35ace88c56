/**
 * Commands for watched addresses.
 */
import { curlOf } from './client.ts';

/** The command that watches the first address. */
export const createCommand = (): string =>
  curlOf('POST /api/notifications/watched-addresses', {
    body: { address: '0x…', webhook_url: 'https://hooks.example.com/deposits' },
  });
