// What every part of the scenario asserts with.

import { deepStrictEqual as same, rejects } from "node:assert";
import { ErrorResponse } from "@azure/cosmos";

/** Asserts that the SDK reports the call as its own error type with this status, and returns the error. */
export async function refused(status, call) {
  let error;
  await rejects(call, (thrown) => {
    error = thrown;
    return thrown instanceof ErrorResponse;
  });
  same(error.code, status, `status ${error.code}, expected ${status}: ${error.message}`);
  return error;
}

/** The document, or undefined where there is none. */
export async function find(container, id, key) {
  const { resource, statusCode } = await container.item(id, key).read();
  // The SDK does not throw for a missing document, unlike for any other error.
  return statusCode === 404 ? undefined : resource;
}
