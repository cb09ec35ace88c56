/**
 * Reads the tables that Chainbell has filled, with hand-written statements.
 */
import pg from 'pg';

export const pool = new pg.Pool({ connectionString: process.env.DATABASE_URL, max: 10 });
