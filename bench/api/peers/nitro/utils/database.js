/**
 * The tables that Chainbell has filled, read with statements of one's own.
 */
import pg from 'pg';

export const pool = new pg.Pool({ connectionString: process.env.DATABASE_URL, max: 10 });
