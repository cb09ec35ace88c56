/** Ponder does not start without an API. */
import { Hono } from 'hono';

export default new Hono();
