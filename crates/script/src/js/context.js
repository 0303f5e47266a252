// What procedures and triggers find besides the language: `getContext()`, `__`, `console` and
// `ErrorCodes`. Its part is a function of the sandbox, the natives of the run and its facts;
// answers what the run needs to drive the script.
//
// A call on the collection is only noted down here. When the script's turn has ended, the run takes
// one note after the other, asks the host, and hands the answer to `complete`.
export let part = function (sandbox, native, facts) {
    part = undefined;

    const { apply, defineProperty, fail, hide, parse, random32, stringify, slice, isArray } = sandbox;
    const { freeze } = Object;

    const ErrorCodes = freeze({
        BadRequest: 400, Forbidden: 403, NotFound: 404, Conflict: 409, PreconditionFailed: 412,
        RequestEntityTooLarge: 413, RetryWith: 449, InternalServerError: 500,
    });

    // ---- the queue of noted calls

    let first;
    let last;
    function enqueue(call) {
        if (last === undefined) first = call;
        else last.next = call;
        last = call;
    }
    function accept(call) {
        if (!native.accept()) return false;
        enqueue(call);
        return true;
    }
    function take() {
        const call = first;
        if (call === undefined) return undefined;
        first = call.next;
        if (first === undefined) last = undefined;
        call.next = undefined;
        return call;
    }

    function deliver(callback, error, resource, options, withoutResource) {
        if (callback === undefined) {
            if (error !== undefined) throw error;
        } else if (error !== undefined) {
            callback(error);
        } else if (withoutResource) {
            callback(undefined, options);
        } else {
            callback(undefined, resource, options);
        }
    }

    // Hands the host's refusal to the script.
    function refuse(call, number, message) {
        const error = fail(number, message);
        error.body = message;
        if (call.done !== undefined) return call.done(error);
        return deliver(call.callback, error);
    }

    // Hands the host's answer to the script.
    function complete(call, statusCode, text, continuation) {
        const options = {
            statusCode,
            currentCollectionSizeInMB: facts.quotaUsed,
            maxCollectionSizeInMB: facts.quotaMax,
        };
        if (call.isFeed) options.continuation = continuation;
        if (statusCode === 304) options.notModified = true;
        // Nobody looks at what nobody is told.
        const isHeard = call.done !== undefined || call.callback !== undefined;
        const resource = text === undefined || !isHeard ? undefined : parse(text);
        if (call.done !== undefined) return call.done(undefined, resource, options);
        return deliver(call.callback, undefined, resource, options, call.kind === 'delete');
    }

    // ---- the collection

    function requireArguments(name, needed, given) {
        if (given < needed) {
            throw fail(400, `The function "${name}" requires at least ${needed} argument(s) but was called with ${given} argument(s).`);
        }
    }
    function checkLink(message) {
        if (message !== undefined) throw fail(400, message);
    }
    function asText(value) {
        return typeof value === 'symbol' ? 'symbol' : `${value}`;
    }
    function collectionLink(link) {
        if (link === facts.selfLink || link === facts.altLink) return;
        if (typeof link !== 'string') throw fail(400, `Invalid collection link: "${asText(link)}".`);
        checkLink(native.collectionLink(link));
    }
    function documentLink(link) {
        if (typeof link !== 'string') throw fail(400, `Invalid document link: "${asText(link)}".`);
        checkLink(native.documentLink(link));
    }
    function optionsAndCallback(options, callback) {
        if (options === undefined) {
            options = {};
        } else if (callback === undefined && typeof options === 'function') {
            callback = options;
            options = {};
        } else if (typeof options !== 'object') {
            throw fail(400, `The "options" parameter must be of type "object". Actual type is: "${typeof options}".`);
        }
        if (callback !== undefined && typeof callback !== 'function') {
            throw fail(400, `The "callback" parameter must be of type "function". Actual type is: "${typeof callback}".`);
        }
        return { options: options === null ? {} : options, callback };
    }
    function textOption(options, name) {
        const value = options[name];
        return value ? `${value}` : undefined;
    }
    function pageSize(options) {
        const size = +(options.pageSize || 100);
        return size >= 1 ? size : size < 0 ? -1 : 100;
    }

    const HEX = '0123456789abcdef';
    function newId() {
        let id = '';
        for (let at = 0; at < 36; at += 1) {
            id += at === 8 || at === 13 || at === 18 || at === 23 ? '-' : HEX[random32() >>> 28];
        }
        return id;
    }
    function withId(body, options) {
        if (body === null || (typeof body !== 'object' && typeof body !== 'string')) {
            throw fail(400, 'The document body must be an object or a string representing a JSON-serialized object.');
        }
        if (options.disableAutomaticIdGeneration !== true) {
            const document = typeof body === 'string' ? parse(body) : body;
            if (typeof document === 'object' && document !== null && !document.id) {
                const copy = {};
                for (const name in document) {
                    defineProperty(copy, name, { value: document[name], writable: true, enumerable: true, configurable: true });
                }
                defineProperty(copy, 'id', { value: newId(), writable: true, enumerable: true, configurable: true });
                return stringify(copy);
            }
        }
        return typeof body === 'string' ? body : stringify(body);
    }
    function bodyText(body) {
        return typeof body === 'object' ? stringify(body) : `${body}`;
    }
    function queryText(query) {
        if (typeof query !== 'string' && typeof query !== 'object') {
            throw fail(400, `The "filterQuery" parameter must be of type "string" or "object". Actual type is: "${typeof query}".`);
        }
        return typeof query === 'string' ? stringify({ query }) : stringify(query);
    }

    const collection = {};
    collection.getSelfLink = function getSelfLink() {
        return facts.selfLink;
    };
    collection.getAltLink = function getAltLink() {
        return facts.altLink;
    };
    collection.readDocument = function readDocument(link, options, callback) {
        requireArguments('readDocument', 1, arguments.length);
        documentLink(link);
        const given = optionsAndCallback(options, callback);
        return accept({
            __proto__: null, kind: 'read', link, condition: textOption(given.options, 'ifNoneMatch'), callback: given.callback, next: undefined,
        });
    };
    collection.readDocuments = function readDocuments(link, options, callback) {
        requireArguments('readDocuments', 1, arguments.length);
        collectionLink(link);
        const given = optionsAndCallback(options, callback);
        return accept({
            __proto__: null, kind: 'readFeed', isFeed: true, pageSize: pageSize(given.options),
            continuation: textOption(given.options, 'continuation'), callback: given.callback, next: undefined,
        });
    };
    collection.queryDocuments = function queryDocuments(link, query, options, callback) {
        requireArguments('queryDocuments', 2, arguments.length);
        collectionLink(link);
        const text = queryText(query);
        const given = optionsAndCallback(options, callback);
        return accept({
            __proto__: null, kind: 'query', isFeed: true, query: text, pageSize: pageSize(given.options),
            continuation: textOption(given.options, 'continuation'), callback: given.callback, next: undefined,
        });
    };
    collection.createDocument = function createDocument(link, body, options, callback) {
        requireArguments('createDocument', 2, arguments.length);
        collectionLink(link);
        const given = optionsAndCallback(options, callback);
        return accept({ __proto__: null, kind: 'create', body: withId(body, given.options), callback: given.callback, next: undefined });
    };
    collection.upsertDocument = function upsertDocument(link, body, options, callback) {
        requireArguments('upsertDocument', 2, arguments.length);
        collectionLink(link);
        const given = optionsAndCallback(options, callback);
        return accept({
            __proto__: null, kind: 'upsert', body: withId(body, given.options), condition: textOption(given.options, 'etag'),
            callback: given.callback, next: undefined,
        });
    };
    collection.replaceDocument = function replaceDocument(link, body, options, callback) {
        requireArguments('replaceDocument', 2, arguments.length);
        documentLink(link);
        const given = optionsAndCallback(options, callback);
        return accept({
            __proto__: null, kind: 'replace', link, body: bodyText(body), condition: textOption(given.options, 'etag'),
            callback: given.callback, next: undefined,
        });
    };
    collection.deleteDocument = function deleteDocument(link, options, callback) {
        requireArguments('deleteDocument', 1, arguments.length);
        documentLink(link);
        const given = optionsAndCallback(options, callback);
        return accept({
            __proto__: null, kind: 'delete', link, condition: textOption(given.options, 'etag'), callback: given.callback, next: undefined,
        });
    };
    collection.patchDocument = function patchDocument(link, patch, options, callback) {
        requireArguments('patchDocument', 2, arguments.length);
        documentLink(link);
        if (patch === null || typeof patch !== 'object') {
            throw fail(400, 'The patch specification must be an object or an array.');
        }
        const given = optionsAndCallback(options, callback);
        const body = stringify(isArray(patch) ? { operations: patch } : patch);
        return accept({
            __proto__: null, kind: 'patch', link, body, condition: textOption(given.options, 'etag'), callback: given.callback, next: undefined,
        });
    };
    for (const name of ['readAttachment', 'readAttachments', 'queryAttachments', 'createAttachment',
        'upsertAttachment', 'replaceAttachment', 'deleteAttachment']) {
        collection[name] = function () {
            throw fail(400, `The function "${name}" is not supported: attachments do not exist in this server.`);
        };
    }
    hide(collection, 'getPartitionKeyDefinition', function getPartitionKeyDefinition() {
        return parse(facts.partitionKey);
    });

    // The query functions are many and seldom used: they are loaded when first asked for.
    let queries;
    function theQueries() {
        if (queries === undefined) {
            queries = native.loadQueries()(sandbox, {
                accept, enqueue, optionsAndCallback, pageSize, collection, response: theResponse,
                isClosing: native.isClosing,
            });
        }
        return queries;
    }
    for (const name of ['filter', 'map', 'pluck', 'flatten', 'unwind', 'sortBy', 'sortByDescending', 'chain']) {
        collection[name] = {
            [name]() {
                return apply(theQueries()[name], this, arguments);
            },
        }[name];
    }
    hide(collection, 'proxy', function proxy() {
        return this;
    });
    defineProperty(collection, 'spatial', {
        configurable: true,
        enumerable: true,
        get() {
            return theQueries().spatial;
        },
        set(value) {
            defineProperty(this, 'spatial', { value, writable: true, configurable: true, enumerable: true });
        },
    });

    // ---- request and response

    function sizeOf(value) {
        if (value === null || value === undefined) return 0;
        const text = typeof value === 'object' ? stringify(value) : asText(value);
        return text === undefined ? 0 : text.length;
    }

    // A message: named properties, some of which can be written. What can be large is read when
    // first asked for.
    function message(properties, sizeMax) {
        let size = 0;
        const grow = (name, value, before) => {
            const after = before + sizeOf(value);
            if (after > sizeMax) {
                throw fail(413, `Resulting message would be too large because of "${name}". Return from script with current message and use continuation token to call the script again or modify your script.`);
            }
            return after;
        };
        const valueOf = (property) => {
            if (property.text !== undefined) {
                property.value = parse(property.text);
                property.text = undefined;
            }
            return property.value;
        };
        const writable = (name) => {
            const property = properties[name];
            if (property === undefined) throw fail(400, `Cannot set new values: ${asText(name)}`);
            if (!property.isWritable) throw fail(403, `Not a writable property: ${name}`);
            return property;
        };
        const get = (name) => name === undefined ? undefined : valueOf(properties[name]);
        const set = (name, value) => {
            if (name === undefined) return;
            const property = writable(name);
            size = grow(name, value, 0);
            property.text = undefined;
            property.value = value;
            property.isSet = true;
        };
        const append = (name, value) => {
            if (name === undefined) return;
            const property = writable(name);
            const current = valueOf(property);
            if (typeof current === 'string') {
                size = grow(name, value, size);
                property.value = current + value;
            } else {
                const sum = current === null || current === undefined ? value : current + value;
                size = grow(name, sum, 0);
                property.value = sum;
            }
            property.isSet = true;
        };
        const object = {};
        let hasWritable = false;
        for (const name in properties) {
            hide(object, `get${name}`, () => get(name));
            if (properties[name].isWritable) {
                hasWritable = true;
                hide(object, `set${name}`, (value) => set(name, value));
                hide(object, `append${name}`, (value) => append(name, value));
            }
        }
        hide(object, 'getValue', get);
        if (hasWritable) {
            hide(object, 'setValue', set);
            hide(object, 'appendValue', append);
        }
        return object;
    }

    // Not every script looks at its request, or answers: both are made when first asked for.
    const property = (value) => ({ text: undefined, value, isWritable: false, isSet: false });
    const isProcedure = facts.kind === 'procedure';
    const hasResponse = facts.kind !== 'pre';
    let requestProperties;
    let request;
    function theRequest() {
        if (request === undefined) {
            requestProperties = { __proto__: null };
            for (let at = 0; at < facts.headers.length; at += 2) {
                requestProperties[facts.headers[at]] = property(facts.headers[at + 1]);
            }
            requestProperties.Body = { text: facts.request, value: undefined, isWritable: facts.kind === 'pre', isSet: false };
            if (!isProcedure) requestProperties.OperationType = property(facts.operation);
            request = message(requestProperties, facts.requestMax);
        }
        return request;
    }
    let responseProperties;
    let response;
    function theResponse() {
        if (response === undefined && hasResponse) {
            responseProperties = {
                __proto__: null,
                Body: { text: facts.response, value: isProcedure ? '' : undefined, isWritable: true, isSet: false },
            };
            if (!isProcedure) {
                responseProperties.ResourceQuotaCurrentUsage = property(facts.quotaUsed);
                responseProperties.MaxResourceQuota = property(facts.quotaMax);
            }
            response = message(responseProperties, facts.responseMax);
        }
        return response;
    }

    // ---- the log

    let written = '';
    const console = {};
    console.log = function log(format) {
        requireArguments('console.log', 1, arguments.length);
        let text = format;
        if (arguments.length > 1) {
            if (typeof format !== 'string') {
                throw fail(400, 'First argument to console.log should be a string containing zero or more substitution strings.');
            }
            text = '';
            let next = 1;
            for (let at = 0; at < format.length; at += 1) {
                const mark = format[at] === '%' ? format[at + 1] : undefined;
                if (mark === '%') text += '%';
                else if (mark === 's') text += asText(arguments[next++]);
                else text += format[at];
                if (mark === '%' || mark === 's') at += 1;
            }
        }
        if (!facts.logging) return;
        const added = asText(text);
        if (written.length + added.length > facts.logMax) {
            throw fail(413, 'Resulting message would be too large because of "x-ms-documentdb-script-log-results". Return from script with current message and use continuation token to call the script again or modify your script.');
        }
        written += added;
    };

    // ---- the context

    let abortion;
    const context = {
        getCollection: () => collection,
        getRequest: () => theRequest(),
        abort(error) {
            abortion = { error };
            native.stop();
        },
    };
    if (hasResponse) context.getResponse = () => theResponse();

    const shortcut = { __proto__: collection, get request() { return theRequest(); }, get response() { return theResponse(); } };
    if (!hasResponse) delete shortcut.response;

    hide(globalThis, 'getContext', function getContext() { return context; });
    hide(globalThis, '__', shortcut);
    hide(globalThis, 'console', console);
    hide(globalThis, 'ErrorCodes', ErrorCodes);

    // ---- what the run asks

    // The text of a body at the end of the script, when it was set; a string is text already
    // where a document is expected.
    function bodyOf(properties, keepsText) {
        if (properties === undefined) return undefined;
        const { isSet, value } = properties.Body;
        if (!isSet || value === undefined) return undefined;
        return keepsText && typeof value === 'string' ? value : stringify(value);
    }
    const ARGUMENTS_MAX = 65534;
    return {
        take,
        refuse,
        complete,
        // Calls the script's function with what the client sent.
        start(main) {
            if (!isProcedure || facts.request === undefined) return main();
            const sent = parse(facts.request);
            if (isArray(sent) && sent.length <= 8) return apply(main, undefined, sent);
            const length = sent === null ? 0 : +sent.length;
            if (!(length >= 1)) return main();
            if (length > ARGUMENTS_MAX) throw fail(400, `a procedure takes at most ${ARGUMENTS_MAX} arguments`);
            return apply(main, undefined, sent);
        },
        abortion: () => abortion,
        log: () => written,
        response: () => bodyOf(responseProperties, false),
        responseDocument: () => bodyOf(responseProperties, true),
        request: () => bodyOf(requestProperties, true),
    };
};
