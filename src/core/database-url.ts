/**
 * Parses the URL of a PostgreSQL server as libpq does: several hosts with separate ports, and target_session_attrs. Of libpq's modes of
 * TLS, those that don't verify the server count as verify-full.
 */

type DatabaseHosts = {
  /** One URL per host, in the order in which they are tried. */
  urls: readonly string[];
  /** Connect only to a server that takes writes. */
  mustWrite: boolean;
};

const URL_PARTS = /^(postgres(?:ql)?:\/\/)([^/?#]*@)?([^/?#]*)(.*)$/s;
const SESSION_ATTRS = /([?&])target_session_attrs=([^&#]*)(&?)/;
/** libpq's other values ask for a standby, but Chainbell needs to write. */
const MUST_WRITE: Record<string, boolean> = { any: false, 'read-write': true, primary: true };
const SSL_MODE = /[?&]sslmode=([^&#]*)/;
const sslModes: ReadonlySet<string> = new Set([
  'disable',
  'prefer',
  'require',
  'verify-ca',
  'verify-full',
  'no-verify',
]);
/** The driver verifies the server with these modes too, and prints a warning about each of them. */
const VERIFYING = /([?&]sslmode=)(?:prefer|require|verify-ca)(?=[&#]|$)/g;
const LIBPQ_MODES = /[?&]uselibpqcompat=true/;

/** With several hosts, only a server that accepts writes is used, unless target_session_attrs is `any`. */
export function parseDatabaseUrl(text: string): DatabaseHosts {
  const [, scheme = '', credentials = '', hosts = '', rest = ''] = URL_PARTS.exec(text) ?? [];
  const [, , attrs] = SESSION_ATTRS.exec(rest) ?? [];
  const withoutAttrs = rest.replace(SESSION_ATTRS, (_all, before: string, _value, after: string) =>
    after === '' ? '' : before,
  );
  const path = LIBPQ_MODES.test(rest) ? withoutAttrs : withoutAttrs.replace(VERIFYING, '$1verify-full');
  const urls = hosts.split(',').map((host) => `${scheme}${credentials}${host}${path}`);
  return { urls, mustWrite: attrs === undefined ? urls.length > 1 : MUST_WRITE[attrs] === true };
}

/** The problem of the URL, or undefined. A suggestion may follow after a line break. It never contains the password. */
export function databaseUrlProblem(text: string): string | undefined {
  const [, , , hosts, rest = ''] = URL_PARTS.exec(text) ?? [];
  if (hosts === undefined || /\s/.test(text)) return 'must be a postgres:// or postgresql:// URL, or empty';
  const list = hosts.split(',');
  if (list.length > 1 && list.includes('')) return 'has an empty host between its commas';
  if (list.some((host) => host !== '' && URL.parse(`postgres://${host}`) === null))
    return 'has a host or port that cannot be one\npercent-encode the credentials: @ / ? # are %40 %2F %3F %23';
  const [, mode] = SSL_MODE.exec(rest) ?? [];
  if (mode !== undefined && !sslModes.has(mode))
    return `has sslmode=${mode}, which Chainbell doesn't have\nuse verify-full, or disable to connect without TLS`;
  const [, , attrs] = SESSION_ATTRS.exec(rest) ?? [];
  if (attrs === undefined || attrs in MUST_WRITE) return undefined;
  return `has target_session_attrs=${attrs}, but Chainbell needs to write\nuse read-write, primary or any`;
}
