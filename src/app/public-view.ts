/**
 * Redacts /status and /readyz for the public. They show states, and nodes by their position in the configuration. The addresses of
 * nodes, databases and price sources appear only in the log and for the operator.
 */
import type { Check } from '../api/context.ts';
import type { StatusBody } from '../api/ops/status-body.ts';
import { httpUrls } from '../chain/nodes/nodes.ts';
import type { Config } from '../config/schema.ts';
import { HIDDEN, redactorOf } from '../core/redact.ts';

type PublicView = {
  checks(checks: Record<string, Check>): Record<string, Check>;
  status(body: StatusBody): StatusBody;
  text(text: string): string;
};

/** The fields of /status whose text comes from nodes, the database or price sources. */
const TEXT_FIELDS = new Set(['message', 'error', 'limit_reason', 'last_reason', 'node', 'source']);
const URL_TEXT = /\b[a-z][a-z0-9+.-]*:\/\/[^\s"'<>|\\^`{}]*[^\s"'<>|\\^`{}.,;:!?)\]]/gi;
/** A worker of Citus, in our messages and in those of Citus. */
const WORKER_TEXT = /(?<=\b(?:worker|remote node) )[^\s,;]+:\d{1,5}/g;
/** What PostgreSQL says of a login that it refuses. */
const LOGIN_TEXT = /(?<=\b(?:user|role|database) ")[^"]*(?=")/g;
const IPV4_TEXT = /(?<![\w.])\d{1,3}(\.\d{1,3}){3}(:\d{1,5})?(?!\w|\.\d)/g;
/** With `::` or at least five groups, because a time of day has three. */
const IPV6_TEXT =
  /(?<![\w:])\[?(?=[\da-f:]*::|([\da-f]{1,4}:){4})[\da-f:]{2,39}(?:\.\d{1,3}){0,3}\]?(:\d{1,5})?/gi;

/**
 * The host in an error of DNS or TLS, and any with its port: a receiver's, or one to which a name of the configuration led. It is not
 * one of the names that stand for hosts of the configuration.
 */
const HOST_TEXT =
  /(?<=\b(?:ENOTFOUND |EAI_AGAIN |Host: |DNS:))(?!chain\.rpc\[|the database server|page\d)[\w*-]+(?:\.[\w*-]+)*\.?(?![\w-])|(?<![\w.-])[\w-]+(?:\.[\w-]+)+\.?:\d{1,5}(?!\w)/gi;

export function createPublicView(config: Config): PublicView {
  const hide = createHide(config);
  const labels = config.chain.rpc.map((url, index) => ({ url, label: labelOf(index) }));
  const httpLabels = labels.filter(({ url }) => httpUrls([url]).length > 0);
  const socketLabels = labels.filter(({ url }) => httpUrls([url]).length === 0);
  const show = inTexts(hide);
  return {
    text: hide,
    checks: (checks) => show(checks) as Record<string, Check>,
    status(body) {
      // Nodes and sockets come in the order of the configuration; two may share a host.
      const named = {
        ...body,
        nodes: body.nodes.map((node, index) => ({ ...node, name: httpLabels[index]?.label ?? HIDDEN })),
        web_sockets: body.web_sockets.map((one, index) => ({
          ...one,
          name: socketLabels[index]?.label ?? HIDDEN,
        })),
        lost_shards: body.lost_shards?.map((one) => ({ ...one, worker: HIDDEN })) ?? null,
      };
      return show(named) as StatusBody;
    },
  };
}

/** The operator's view: hosts are shown, and the secrets in the paths and queries of URLs are hidden. */
export function createOperatorView(config: Config): (body: StatusBody) => StatusBody {
  const redactors = [...config.chain.rpc, ...pagesOf(config)].map(redactorOf);
  const show = inTexts((text) => redactors.reduce((shown, redact) => redact(shown), text));
  return (body) => show(body) as StatusBody;
}

/** Applies `hide` to the text fields of a body, however deep. */
function inTexts(hide: (text: string) => string): (value: unknown) => unknown {
  const show = (value: unknown): unknown => {
    if (Array.isArray(value)) return value.map(show);
    if (typeof value !== 'object' || value === null) return value;
    const fields = Object.entries(value).map(([name, field]): [string, unknown] =>
      typeof field === 'string' && TEXT_FIELDS.has(name) ? [name, hide(field)] : [name, show(field)],
    );
    return Object.fromEntries(fields);
  };
  return show;
}

const labelOf = (index: number) => `chain.rpc[${index}]`;

type Place = { host: string; port: string; label: string };

/** Replaces URLs and hosts of the configuration by names, and hides all other URLs and addresses. */
function createHide(config: Config): (text: string) => string {
  const { rpc } = config.chain;
  const redactors = rpc.map(redactorOf);
  const places = [...rpc.map((url, index) => placeOf(url, labelOf(index))), ...otherPlaces(config)];
  const patterns = [
    ...rpc.map((url, index) => ({ pattern: originPattern(url), label: labelOf(index) })),
    { pattern: URL_TEXT, label: HIDDEN },
    // Before the hosts, because a node may be on the same machine.
    { pattern: WORKER_TEXT, label: HIDDEN },
    // Hosts with their ports come first, because several nodes may share a machine.
    ...places.map(({ host, port, label }) => ({ pattern: hostPattern(host, `:${port}`), label })),
    // Another port of such a host is another server, perhaps this process. Its port tells the operator which one.
    ...places.map(({ host }) => ({ pattern: hostPattern(host, '(?=:\\d)'), label: HIDDEN })),
    ...places.map(({ host, label }) => ({ pattern: hostPattern(host, ''), label })),
    // IPv6 comes first, because an IPv6 address may end in an IPv4 address.
    { pattern: IPV6_TEXT, label: HIDDEN },
    { pattern: IPV4_TEXT, label: HIDDEN },
    { pattern: HOST_TEXT, label: HIDDEN },
    { pattern: LOGIN_TEXT, label: HIDDEN },
  ];
  return (text) => {
    const redacted = redactors.reduce((shown, redact) => redact(shown), text);
    return patterns.reduce((shown, { pattern, label }) => shown.replace(pattern, label), redacted);
  };
}

/** The hosts of the database and of price pages. */
function otherPlaces(config: Config): Place[] {
  const { url, sessionUrl, replicaUrl } = config.database;
  return [
    ...[url, sessionUrl].flatMap(serversOf).map((server) => placeOf(server, 'the database server')),
    ...serversOf(replicaUrl).map((server) => placeOf(server, 'the replica')),
    ...pagesOf(config).map((url, index) => placeOf(url, `page${index + 1}`)),
  ];
}

/** A URL for each host, because a list of several hosts can't be parsed as a URL. */
function serversOf(databaseUrl: string): string[] {
  const authority = databaseUrl.replace(/^[^:]*:\/\//, '').split(/[/?#]/, 1)[0] ?? '';
  const servers = authority.slice(authority.lastIndexOf('@') + 1).split(',');
  return servers.filter((server) => server !== '').map((server) => `postgres://${server}`);
}

/** The URLs of price sources. */
function pagesOf({ prices }: Config): string[] {
  const feeds = [...(prices.native === undefined ? [] : [prices.native]), ...Object.values(prices.tokens)];
  return feeds.flatMap(({ sources }) =>
    sources.flatMap((source) => {
      if (source.type === 'http') return [source.url];
      return 'baseUrl' in source && source.baseUrl !== undefined ? [source.baseUrl] : [];
    }),
  );
}

function placeOf(url: string, label: string): Place {
  const parsed = URL.parse(url);
  const port = /^(https|wss):/.test(url) ? '443' : '80';
  return { host: parsed?.hostname.replace(/\.$/, '') ?? '', port: parsed?.port || port, label };
}

/** `https://one.example`, also with the port of its scheme, but not inside of `https://one.example.org`. */
const originPattern = (url: string) =>
  new RegExp(`${RegExp.escape(new URL(url).origin)}(?![\\w.:-]*\\w)`, 'g');

/** A name without dots may be an ordinary word, so it is replaced only in the position of a host. */
function hostPattern(host: string, port: string): RegExp {
  const name = `${RegExp.escape(host)}\\.?`;
  const end = '(?!\\.?[\\w-])';
  if (/[.:]/.test(host)) return new RegExp(`(?<![\\w.-])${name}${port}${end}`, 'gi');
  if (host === '') return /(?!)/g;
  const after = '(?:\\/\\/|http:|ENOTFOUND |EAI_AGAIN |ECONNREFUSED |ETIMEDOUT |Host: )';
  const withPort = port === '' ? ':\\d{1,5}' : port;
  return new RegExp(`(?<=${after})${name}${port}${end}|(?<![\\w.-])${name}${withPort}${end}`, 'gi');
}
