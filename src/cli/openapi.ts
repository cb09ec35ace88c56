/**
 * `chainbell openapi`: the description of the API, for generators and other tools.
 */
import type { Command } from 'commander';
import { renderOpenApi } from '../openapi.ts';

export function addOpenApiCommand(program: Command): void {
  program
    .command('openapi')
    .description('print the description of the API (OpenAPI 3.1, JSON)')
    .action(async () => {
      process.stdout.write(await renderOpenApi());
    });
}
