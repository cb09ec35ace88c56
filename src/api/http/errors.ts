/**
 * Every error as the specified body (spec 7): {statusCode, statusMessage}, and on watched-address endpoints
 * {success: false, statusCode, statusMessage, code?, errors?}.
 */
import type { FastifyReply, FastifyRequest } from 'fastify';
import { Fault, type FaultCode, type Problem } from '../../core/fault.ts';
import type { Log } from '../../core/log.ts';
import { errorHeadersOf, isKeyed } from './shared-headers.ts';

const INVALID_REQUEST = 'Invalid request';
/** Problems in one answer: enough to see what is wrong. A search for more may stop there. */
export const PROBLEMS_MAX = 100;

/** A Fault that refuses a request for these problems. */
export const invalidRequest = (problems: Problem[]) => new Fault('invalid', INVALID_REQUEST, { problems });
/** A Fault that refuses a request for one problem. */
export const invalid = (path: string, message: string) => invalidRequest([{ path, message }]);

const statusOf: Record<FaultCode, number> = {
  invalid: 400,
  unauthorized: 401,
  forbidden: 403,
  not_found: 404,
  conflict: 409,
  limited: 429,
  inconsistent: 503,
  unavailable: 503,
};

export type Answer = { statusCode: number; statusMessage: string; code?: string; errors?: Problem[] };

export async function answerError(
  error: unknown,
  request: FastifyRequest,
  reply: FastifyReply,
  log: Log,
): Promise<void> {
  const answer = toAnswer(error);
  // Most paths accept only JSON. The others name their content types.
  if (answer.statusCode === 415)
    answer.statusMessage = request.routeOptions.config.operation?.errors?.[415] ?? answer.statusMessage;
  if (answer.statusCode >= 500) {
    const fields = { err: error, requestId: request.id, url: request.routeOptions.url };
    if (hasHungUp(error, request)) log.debug(fields, 'http.aborted');
    else log.error(fields, 'http.failed');
  }
  if (answer.statusCode === 401) reply.header('www-authenticate', 'Bearer');
  if (answer.statusCode === 429) reply.header('retry-after', '60');
  if (answer.statusCode === 503) reply.header('retry-after', '5');
  await sendAnswer(answer, request, reply);
}

/** Whether the client closed the connection before its body was complete. */
const hasHungUp = (error: unknown, { raw }: FastifyRequest): boolean =>
  !raw.complete && error instanceof Error && 'code' in error && error.code === 'ECONNRESET';

/** Sends an error in the form of its path. */
export async function sendAnswer(
  answer: Answer,
  request: FastifyRequest,
  reply: FastifyReply,
): Promise<void> {
  await reply.code(answer.statusCode).headers(errorHeadersOf(request.url)).send(bodyOf(answer, request.url));
}

export const answerUnknownPath = (request: FastifyRequest, reply: FastifyReply): Promise<void> =>
  sendAnswer({ statusCode: 404, statusMessage: `No such path: ${pathOf(request.url)}` }, request, reply);

export const pathOf = (url: string) => url.split('?', 1)[0];

/** The body of an error in the form of its path. */
export function bodyOf(answer: Answer, url: string): object {
  return isKeyed(url) ? { success: false, ...answer } : plain(answer);
}

/** Public bodies have two fields (spec 7), so the problems become part of the message. */
function plain({ statusCode, statusMessage, errors = [] }: Answer): Answer {
  return { statusCode, statusMessage: [statusMessage, ...errors.map(({ message }) => message)].join(': ') };
}

/** The response to a thrown value of any kind. */
export function toAnswer(error: unknown): Answer {
  if (error instanceof Fault) {
    const statusCode = statusOf[error.code];
    // Messages of the database and of nodes belong in the operator's log. The caller doesn't see them.
    const statusMessage = statusCode === 503 ? 'Service Unavailable' : error.message;
    return {
      ...{ statusCode, statusMessage },
      ...(error.reason !== undefined && { code: error.reason }),
      ...(error.problems.length > 0 && { errors: error.problems.slice(0, PROBLEMS_MAX) }),
    };
  }
  if (!(error instanceof Error)) return { statusCode: 500, statusMessage: 'Internal Server Error' };
  if ('validation' in error && Array.isArray(error.validation)) {
    const errors = error.validation.flatMap(toProblems).slice(0, PROBLEMS_MAX);
    return { statusCode: 400, statusMessage: INVALID_REQUEST, errors };
  }
  const statusCode = 'statusCode' in error && typeof error.statusCode === 'number' ? error.statusCode : 500;
  switch (statusCode) {
    case 400:
      return { statusCode, statusMessage: INVALID_REQUEST, errors: [{ path: '', message: error.message }] };
    case 413:
      return { statusCode, statusMessage: 'Payload Too Large' };
    // Fastify's message repeats the path, of any length.
    case 414:
      return { statusCode, statusMessage: 'URI Too Long' };
    case 415:
      return { statusCode, statusMessage: 'Unsupported Media Type: send Content-Type: application/json' };
    default:
      return statusCode < 500
        ? { statusCode, statusMessage: error.message }
        : { statusCode: 500, statusMessage: 'Internal Server Error' };
  }
}

/** The problems in one finding of the schema validator, which reports all missing fields together. */
export function toProblems(finding: unknown): Problem[] {
  const { instancePath = '', params = {}, ...rest } = finding as Partial<Finding>;
  const missing = params.requiredProperties?.map((name) => ({
    path: `${instancePath}/${name}`,
    message: 'is required',
  }));
  return missing ?? [{ path: instancePath, message: wordsOf({ params, ...rest }) }];
}

type Finding = {
  instancePath: string;
  keyword: string;
  message: string;
  params: {
    requiredProperties?: string[];
    limit?: number;
    allowedValues?: string[];
    pattern?: string;
  };
};

/** The patterns of the schemas of bodies, in words. */
const forms: Record<string, string> = {
  '^[0-9]{1,78}$': 'must be a whole number with at most 78 digits',
  '^(0[xX])?[0-9a-fA-F]{40}$': 'must be an address: 0x and 40 hexadecimal characters',
};

function wordsOf({ keyword, message = 'is invalid', params = {} }: Partial<Finding>): string {
  switch (keyword) {
    case 'minimum':
      return `must be at least ${params.limit}`;
    case 'maximum':
      return `must be at most ${params.limit}`;
    case 'enum':
      return `must be one of ${params.allowedValues?.join(', ')}`;
    case 'pattern':
      return forms[params.pattern ?? ''] ?? message;
    default:
      return message;
  }
}
