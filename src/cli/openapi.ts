/**
 * `chainbell openapi`: prints the OpenAPI description of the API, for generators and other tools.
 */
import type { Command } from 'commander';

export function addOpenApiCommand(program: Command): void {
  program
    .command('openapi')
    .description('print the OpenAPI 3.1 description of the API as JSON')
    .action(async () => {
      const { renderOpenApi } = await import('../app/render-openapi.ts');
      process.stdout.write(await renderOpenApi());
    });
}
