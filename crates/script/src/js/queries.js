// The query functions of the collection and of `__`: filter, map, chain and the others. Its part is
// a function of the sandbox and of what the context lends.
//
// Every query walks the documents of the partition and evaluates in JavaScript, step by step from
// left to right. Without a sort a page ends when it is full; with one, everything is read and sorted
// before the first page. A continuation says where in the walk the next page starts and how many
// results of there it skips.
//
// This is loaded when the script is already running, so nothing here relies on what a script can
// change: no iteration over arrays, no method of theirs.
export let part = function (sandbox, context) {
    part = undefined;

    const { fail, stringify, parse, isArray } = sandbox;
    const { accept, enqueue, optionsAndCallback, pageSize, collection, isClosing } = context;
    const SCAN_PAGE = 1000;

    const push = (list, item) => { list[list.length] = item; };

    // ---- the steps: a list of results in, a list out

    function filter(predicate) {
        return (items) => {
            const kept = [];
            for (let at = 0; at < items.length; at += 1) if (predicate(items[at])) push(kept, items[at]);
            return kept;
        };
    }
    function map(transform) {
        return (items) => {
            const mapped = [];
            for (let at = 0; at < items.length; at += 1) push(mapped, transform(items[at]));
            return mapped;
        };
    }
    function flatten(isShallow) {
        const into = (flat, item, isTop) => {
            if (!isArray(item) || (isShallow && !isTop)) return push(flat, item);
            for (let at = 0; at < item.length; at += 1) into(flat, item[at], false);
        };
        return (items) => {
            const flat = [];
            for (let at = 0; at < items.length; at += 1) into(flat, items[at], true);
            return flat;
        };
    }
    function unwind(select, combine) {
        return (items) => {
            const rows = [];
            for (let at = 0; at < items.length; at += 1) {
                const inner = select(items[at]);
                if (!isArray(inner)) continue;
                for (let in_ = 0; in_ < inner.length; in_ += 1) {
                    push(rows, combine === undefined ? inner[in_] : combine(items[at], inner[in_]));
                }
            }
            return rows;
        };
    }

    // Values of different types sort as in queries: undefined, null, booleans, numbers, strings.
    const RANKS = { __proto__: null, undefined: 0, boolean: 2, number: 3, string: 4 };
    function rank(key) {
        if (key === null) return 1;
        const found = RANKS[typeof key];
        return found === undefined ? 5 : found;
    }
    function compare(left, right) {
        const difference = rank(left.key) - rank(right.key);
        if (difference !== 0) return difference;
        if (rank(left.key) < 5 && left.key < right.key) return -1;
        if (rank(left.key) < 5 && left.key > right.key) return 1;
        return 0;
    }
    function merge(list, direction) {
        if (list.length < 2) return list;
        const middle = list.length >>> 1;
        const left = [];
        const right = [];
        for (let at = 0; at < list.length; at += 1) push(at < middle ? left : right, list[at]);
        const one = merge(left, direction);
        const other = merge(right, direction);
        const merged = [];
        let from = 0;
        let to = 0;
        while (from < one.length || to < other.length) {
            const takesOne = to === other.length || (from < one.length && direction * compare(one[from], other[to]) <= 0);
            push(merged, takesOne ? one[from++] : other[to++]);
        }
        return merged;
    }
    function sort(keyOf, direction) {
        const step = (items) => {
            const keyed = [];
            for (let at = 0; at < items.length; at += 1) push(keyed, { key: keyOf(items[at]), item: items[at] });
            const sorted = merge(keyed, direction);
            for (let at = 0; at < sorted.length; at += 1) sorted[at] = sorted[at].item;
            return sorted;
        };
        step.isSort = true;
        return step;
    }

    // ---- running a query

    function applySteps(steps, items) {
        let results = items;
        for (let at = 0; at < steps.length; at += 1) results = steps[at](results);
        return results;
    }
    function hasSort(steps) {
        for (let at = 0; at < steps.length; at += 1) if (steps[at].isSort) return true;
        return false;
    }
    function readContinuation(text) {
        if (text === undefined) return { from: undefined, skip: 0 };
        try {
            const { from, skip } = parse(text);
            if ((from === undefined || typeof from === 'string') && skip >= 0) return { from, skip };
        } catch { /* refused below */ }
        throw fail(400, 'The continuation is not one that a query of this kind has given.');
    }

    function run(steps, options, callback) {
        const given = optionsAndCallback(options, callback);
        const response = context.response();
        const isMute = given.callback === undefined;
        if (isMute && response === undefined) {
            throw fail(400, 'The callback function must be provided for scenarios, such as pre-trigger, when response object is not available.');
        }
        const asked = pageSize(given.options);
        const size = asked < 0 ? Infinity : asked;
        const start = readContinuation(given.options.continuation ? `${given.options.continuation}` : undefined);
        const sorted = hasSort(steps);
        let gathered = [];
        let { from, skip } = start;

        const finish = (error, results, callOptions) => {
            if (error !== undefined) {
                if (isMute) throw error;
                return given.callback(error);
            }
            if (isMute) return response.appendBody(stringify(results));
            return given.callback(undefined, results, callOptions);
        };
        const call = {
            __proto__: null, kind: 'readFeed', isFeed: true, pageSize: 0, continuation: undefined, callback: undefined, next: undefined,
            done(error, documents, callOptions) {
                if (error !== undefined) return finish(error);
                const next = callOptions.continuation;
                let results;
                try {
                    results = sorted ? documents : applySteps(steps, documents);
                } catch (failure) {
                    return finish(failure);
                }
                for (let at = sorted ? 0 : skip; at < results.length; at += 1) {
                    if (!sorted && gathered.length >= size) {
                        callOptions.continuation = stringify({ from, skip: at });
                        return finish(undefined, gathered, callOptions);
                    }
                    push(gathered, results[at]);
                }
                const isFull = gathered.length >= size || (isClosing() && gathered.length > 0);
                if (next && (sorted || !isFull)) {
                    if (!sorted) skip = skip > results.length ? skip - results.length : 0;
                    from = next;
                    return request();
                }
                if (!sorted) {
                    callOptions.continuation = next ? stringify({ from: next, skip: 0 }) : undefined;
                    return finish(undefined, gathered, callOptions);
                }
                return finishSorted(callOptions);
            },
        };
        const finishSorted = (callOptions) => {
            let results;
            try {
                results = applySteps(steps, gathered);
            } catch (failure) {
                return finish(failure);
            }
            const page = [];
            for (let at = skip; at < results.length && page.length < size; at += 1) push(page, results[at]);
            const end = skip + page.length;
            callOptions.continuation = end < results.length ? stringify({ skip: end }) : undefined;
            return finish(undefined, page, callOptions);
        };
        const request = () => {
            call.continuation = from;
            // Where a page may end inside what one read brought, the next page reads the same again.
            call.pageSize = sorted || size === Infinity ? SCAN_PAGE : size;
            enqueue(call);
        };
        if (sorted) from = undefined;
        call.continuation = from;
        call.pageSize = sorted || size === Infinity ? SCAN_PAGE : size;
        return { isAccepted: accept(call) };
    }

    // ---- the functions that scripts call

    function isCollection(value) {
        return value === collection || (typeof value === 'object' && value !== null && typeof value.getSelfLink === 'function');
    }
    function needFunction(value) {
        if (typeof value !== 'function') throw fail(400, 'The predicate/transform function must be provided.');
        return value;
    }

    // Reads the arguments of one function: what makes its step, then options and callback.
    const READERS = {
        __proto__: null,
        filter: (given) => filter(needFunction(given[0])),
        map: (given) => map(needFunction(given[0])),
        sortBy: (given) => sort(needFunction(given[0]), 1),
        sortByDescending: (given) => sort(needFunction(given[0]), -1),
        pluck: (given) => {
            const name = given[0];
            if (typeof name !== 'string' || name === '') throw fail(400, 'The property name must be a string and cannot be empty.');
            return map((item) => item === null || item === undefined ? undefined : item[name]);
        },
        flatten: (given) => {
            if (typeof given[0] === 'boolean') return flatten(given[0]);
            given.used = 0;
            return flatten(false);
        },
        unwind: (given) => {
            const select = given[0];
            const combine = given[1];
            if (!select) throw fail(400, 'When using "unwind", "collectionSelector" must be used.');
            if (typeof select !== 'function') throw fail(400, 'When using "unwind", "collectionSelector" must be a function.');
            if (select.length !== 1) throw fail(400, '"collectionSelector" requires one argument.');
            if (typeof combine !== 'function') return unwind(select, undefined);
            if (combine.length < 2) throw fail(400, '"resultSelector" requires two arguments.');
            given.used = 2;
            return unwind(select, combine);
        },
    };
    function read(name, parameters) {
        const given = [];
        for (let at = isCollection(parameters[0]) ? 1 : 0; at < parameters.length; at += 1) push(given, parameters[at]);
        given.used = 1;
        const step = READERS[name](given);
        let options = given[given.used];
        let callback = given[given.used + 1];
        if (typeof options === 'function' && callback === undefined) {
            callback = options;
            options = undefined;
        }
        return { step, options, callback };
    }

    function chainOf(steps) {
        const link = { isAccepted: true };
        for (const name in READERS) {
            link[name] = function () {
                const { step, options, callback } = read(name, arguments);
                if (options) throw fail(400, 'When using "chain", options can only be provided on the call to the "value" function');
                if (callback) throw fail(400, 'When using "chain", the callback parameter can only be provided on the "value" function.');
                const longer = [];
                for (let at = 0; at < steps.length; at += 1) push(longer, steps[at]);
                push(longer, step);
                return chainOf(longer);
            };
        }
        link.value = (options, callback) => run(steps, options, callback);
        return link;
    }

    const functions = {
        __proto__: null,
        chain: () => chainOf([]),
        spatial: { __proto__: null },
    };
    for (const name in READERS) {
        functions[name] = function () {
            const { step, options, callback } = read(name, arguments);
            return run([step], options, callback);
        };
    }
    const SPATIAL = { __proto__: null, distance: 1, intersects: 1, within: 1, isValid: 1, isValidDetailed: 1 };
    for (const name in SPATIAL) {
        functions.spatial[name] = () => {
            throw fail(400, `spatial.${name} is not supported in scripts; use the spatial functions of queries instead.`);
        };
    }
    return functions;
};
