// What every script finds: the language, without what would tell two runs of it apart and without
// what could run past its deadline. Its part is a function of the natives of the engine.
//
// A script may change every object that it can reach, so nothing here calls a method of such an
// object after the script has started: what is needed later is kept in a constant now.
//
// This is done for every run, so it does no more than every run needs.
export let part = function (native) {
    part = undefined;

    const { apply, construct } = Reflect;
    const { defineProperty, getOwnPropertyNames, setPrototypeOf } = Object;
    const { isArray } = Array;
    const { floor, imul } = Math;
    const NativeError = Error;
    const NativeRangeError = RangeError;
    const NativeTypeError = TypeError;
    const NativeDate = Date;
    const NativeProxy = Proxy;
    const NativeString = String;
    const { tick, now } = native;

    // To describe a property takes longer than to have it, so the descriptions are used again.
    const hidden = { __proto__: null, value: undefined, writable: true, configurable: true, enumerable: false };
    const counted = { __proto__: null, value: 0, writable: false, configurable: true, enumerable: false };
    function hide(object, name, value) {
        hidden.value = value;
        defineProperty(object, name, hidden);
        hidden.value = undefined;
    }

    for (const name of ['Atomics', 'SharedArrayBuffer', 'BigInt', 'BigInt64Array', 'BigUint64Array',
        'WeakRef', 'FinalizationRegistry', 'performance', 'queueMicrotask', 'navigator', 'gc', 'print']) {
        delete globalThis[name];
    }

    // The engine of the service takes a number before the message: `new Error(409, 'taken')`.
    function numbered(first, second, count) {
        return count > 1 && typeof first === 'number' ? [second] : count > 1 ? [first, second] : count > 0 ? [first] : [];
    }

    const ErrorOfService = {
        Error: function (first, second) {
            const error = construct(NativeError, numbered(first, second, arguments.length), new.target || ErrorOfService);
            if (arguments.length > 1 && typeof first === 'number') error.number = first;
            return error;
        },
    }.Error;
    for (const name of getOwnPropertyNames(NativeError)) {
        if (name !== 'prototype' && name !== 'name' && name !== 'length') {
            defineProperty(ErrorOfService, name, Object.getOwnPropertyDescriptor(NativeError, name));
        }
    }
    defineProperty(ErrorOfService, 'length', { value: 1 });
    defineProperty(ErrorOfService, 'prototype', { value: NativeError.prototype, writable: false });
    hide(NativeError.prototype, 'constructor', ErrorOfService);
    for (const kind of [TypeError, RangeError, SyntaxError, ReferenceError, EvalError, URIError]) {
        setPrototypeOf(kind, ErrorOfService);
    }
    hide(globalThis, 'Error', ErrorOfService);

    function fail(number, message) {
        const error = new NativeError(message);
        error.number = number;
        return error;
    }

    // Chance is a sequence that the caller seeds, so that a script does the same when run again.
    let state = native.seed >>> 0;
    let weyl = native.stream >>> 0;
    function random32() {
        weyl = (weyl + 0x9e3779b9) >>> 0;
        state = (state + weyl) >>> 0;
        let mixed = state ^ (state >>> 16);
        mixed = imul(mixed, 0x21f0aaad);
        mixed ^= mixed >>> 15;
        mixed = imul(mixed, 0x735a2d97);
        return (mixed ^ (mixed >>> 15)) >>> 0;
    }
    function random() {
        const high = random32() >>> 5;
        const low = random32() >>> 6;
        return (high * 67108864 + low) / 9007199254740992;
    }
    hide(Math, 'random', random);

    function slice(text, from, to) {
        return apply(sliceText, text, [from, to]);
    }
    const sliceText = NativeString.prototype.slice;

    // Dates take the caller's clock. Few scripts have any, so they come when first asked for.
    delete globalThis.Date;
    defineProperty(globalThis, 'Date', {
        configurable: true,
        enumerable: false,
        get() {
            const made = native.loadDates()(tools, NativeDate, now);
            hide(globalThis, 'Date', made);
            return made;
        },
        set(value) {
            hide(globalThis, 'Date', value);
        },
    });

    // The engine looks at the clock when functions are called and loops turn, not inside its own
    // functions. Those that can take long ask here first, and refuse what no script can hold in
    // memory anyway: a length that is only claimed makes them run for years.
    const LENGTH_MAX = 4194304;
    const SEARCH_MAX = 17179869184;
    const lists = Array.prototype;
    const texts = NativeString.prototype;
    const proxies = new WeakSet();
    const proxiesAdd = WeakSet.prototype.add;
    const proxiesHas = WeakSet.prototype.has;

    const ProxyOfSandbox = {
        Proxy: function (target, handler) {
            if (new.target === undefined) throw new NativeTypeError("constructor requires 'new'");
            const proxy = new NativeProxy(target, handler);
            apply(proxiesAdd, proxies, [proxy]);
            return proxy;
        },
    }.Proxy;
    const { revocable } = NativeProxy;
    hide(ProxyOfSandbox, 'revocable', function revocable_(target, handler) {
        const made = revocable(target, handler);
        apply(proxiesAdd, proxies, [made.proxy]);
        return made;
    });
    defineProperty(ProxyOfSandbox, 'prototype', { value: undefined, writable: false });
    hide(globalThis, 'Proxy', ProxyOfSandbox);

    // Puts a method in the place of the one it stands for; it is the only one of `methods`, has the
    // same name, and one parameter. The property is there, and so it stays hidden.
    function stand(holder, name, original, methods) {
        const guarded = methods[name];
        if (original.length !== 1) {
            counted.value = original.length;
            defineProperty(guarded, 'length', counted);
        }
        holder[name] = guarded;
    }
    function tooLong(name) {
        return new NativeRangeError(`${name}: the array is longer than ${LENGTH_MAX}`);
    }
    function isPlainArray(list) {
        return isArray(list) && !apply(proxiesHas, proxies, [list]);
    }
    // A copy of what only looks like an array, whose length cannot change its mind.
    function copyOf(thing, name) {
        if (thing === null || thing === undefined) throw new NativeTypeError(`${name} called on null or undefined`);
        const length = floor(+thing.length) || 0;
        if (length > LENGTH_MAX) throw tooLong(name);
        const copy = [];
        for (let at = 0; at < length; at += 1) {
            if (at in Object(thing)) {
                defineProperty(copy, at, { value: thing[at], writable: true, configurable: true, enumerable: true });
            }
        }
        if (length > copy.length) copy.length = length;
        return copy;
    }
    function guardList(name, mutates) {
        const original = lists[name];
        if (original === undefined) return;
        stand(lists, name, original, {
            [name](_) {
                if (isPlainArray(this)) {
                    if (this.length > 1024) {
                        if (this.length > LENGTH_MAX) throw tooLong(name);
                        tick();
                    }
                    return apply(original, this, arguments);
                }
                if (mutates) throw new NativeTypeError(`${name} is for arrays only`);
                return apply(original, copyOf(this, name), arguments);
            },
        });
    }
    for (const name of ['indexOf', 'lastIndexOf', 'includes', 'join', 'slice', 'toReversed', 'toSorted',
        'toSpliced', 'with']) guardList(name, false);
    for (const name of ['sort', 'reverse', 'fill', 'splice', 'shift', 'unshift', 'copyWithin']) guardList(name, true);

    const { concat } = lists;
    const symbolSpreadable = Symbol.isConcatSpreadable;
    stand(lists, 'concat', concat, {
        concat(_) {
            let length = 0;
            for (let at = -1; at < arguments.length; at += 1) {
                const item = at < 0 ? this : arguments[at];
                if (isPlainArray(item)) {
                    length += item.length;
                    if (item[symbolSpreadable] !== undefined) length = LENGTH_MAX + 1;
                } else if (typeof item === 'object' && item !== null && (isArray(item) || item[symbolSpreadable])) {
                    throw new NativeTypeError('concat takes arrays and single values only');
                }
            }
            if (length > LENGTH_MAX) throw tooLong('concat');
            if (length > 1024) tick();
            return apply(concat, this, arguments);
        },
    });

    // A list that holds itself many times over can be flattened for ever, so every level asks.
    function flattenInto(result, list, depth) {
        const length = list.length;
        for (let at = 0; at < length; at += 1) {
            if (at in list) {
                const item = list[at];
                if (depth > 0 && isPlainArray(item)) flattenInto(result, item, depth - 1);
                else result[result.length] = item;
            }
        }
        return result;
    }
    stand(lists, 'flat', lists.flat, {
        flat(depth) {
            const levels = depth === undefined ? 1 : floor(+depth) || 0;
            return flattenInto([], isPlainArray(this) ? this : copyOf(this, 'flat'), levels);
        },
    });

    const typedArrays = Object.getPrototypeOf(Uint8Array.prototype);
    for (const name of ['sort', 'toSorted', 'indexOf', 'lastIndexOf', 'includes', 'join', 'fill', 'slice', 'set',
        'reverse', 'toReversed', 'copyWithin']) {
        const original = typedArrays[name];
        if (original === undefined) continue;
        stand(typedArrays, name, original, {
            [name](_) {
                if (this.length > 1024) {
                    if (this.length > LENGTH_MAX) throw tooLong(name);
                    tick();
                }
                return apply(original, this, arguments);
            },
        });
    }

    // Spreading and destructuring begin here.
    const symbolIterator = Symbol.iterator;
    const nextOf = lists[symbolIterator];
    const values = { values() { if (this.length > 1024) tick(); return apply(nextOf, this, []); } }.values;
    hide(lists, 'values', values);
    hide(lists, symbolIterator, values);
    for (const holder of [Map.prototype, Set.prototype]) {
        const original = holder[symbolIterator];
        hide(holder, symbolIterator, function () {
            if (this.size > 1024) tick();
            return apply(original, this, []);
        });
    }
    for (const name of ['keys', 'values', 'entries', 'assign', 'fromEntries', 'freeze', 'getOwnPropertyNames',
        'getOwnPropertyDescriptors', 'defineProperties']) {
        const original = Object[name];
        stand(Object, name, original, {
            [name](_) {
                tick();
                return apply(original, Object, arguments);
            },
        });
    }

    function guardSearch(name) {
        const original = texts[name];
        const methods = {
            [name](sought) {
                if (typeof this !== 'string' || typeof sought !== 'string') {
                    if (this === null || this === undefined) throw new NativeTypeError(`${name} called on null or undefined`);
                    // A pattern does its own searching, and asks for the time while it does.
                    if (typeof sought === 'object' && sought !== null) {
                        tick();
                        return apply(original, `${this}`, arguments);
                    }
                    const given = arguments.length === 0 ? [undefined] : arguments;
                    given[0] = `${sought}`;
                    return apply(methods[name], `${this}`, given);
                }
                if (this.length * sought.length > 1048576) {
                    if (this.length * sought.length > SEARCH_MAX) {
                        throw new NativeRangeError(`${name}: the strings are too long to search one in the other`);
                    }
                    tick();
                }
                return apply(original, this, arguments);
            },
        };
        stand(texts, name, original, methods);
    }
    for (const name of ['indexOf', 'lastIndexOf', 'includes', 'replaceAll']) guardSearch(name);
    for (const name of ['split', 'replace']) {
        const original = texts[name];
        stand(texts, name, original, {
            [name](sought) {
                if (typeof this === 'string' && this.length > 4096) {
                    if (typeof sought === 'string' && this.length * sought.length > SEARCH_MAX) {
                        throw new NativeRangeError(`${name}: the strings are too long to search one in the other`);
                    }
                    tick();
                }
                return apply(original, this, arguments);
            },
        });
    }
    // These make much of little.
    for (const name of ['repeat', 'padStart', 'padEnd']) {
        const original = texts[name];
        stand(texts, name, original, {
            [name](_) {
                tick();
                return apply(original, this, arguments);
            },
        });
    }
    const listFrom = Array.from;
    stand(Array, 'from', listFrom, {
        from(_) {
            tick();
            return apply(listFrom, this, arguments);
        },
    });
    for (const name of ['normalize', 'toLowerCase', 'toUpperCase', 'concat']) {
        const original = texts[name];
        stand(texts, name, original, {
            [name](_) {
                if (typeof this === 'string' && this.length > 4096) tick();
                return apply(original, this, arguments);
            },
        });
    }

    // A structure that holds itself many times over makes more text than there is memory, and the
    // engine goes on after the memory has run out. Calling a function for every member, it stops.
    const { parse, stringify: write } = JSON;
    const pass = (name, value) => value;
    const { stringify } = {
        stringify(value, replacer, space) {
            tick();
            if (typeof replacer === 'function') return write(value, replacer, space);
            const text = write(value, pass, isArray(replacer) ? undefined : space);
            return isArray(replacer) ? write(value, replacer, space) : text;
        },
    };
    JSON.stringify = stringify;
    JSON.parse = {
        parse(text, reviver) {
            tick();
            return parse(text, reviver);
        },
    }.parse;

    // What a failure looks like from outside. The script may have thrown anything, with getters
    // that throw in turn.
    const DESCRIPTION_MAX = 16384;
    const cut = (text) => text.length > DESCRIPTION_MAX ? slice(text, 0, DESCRIPTION_MAX) : text;
    function describe(error) {
        const isObject = typeof error === 'object' && error !== null;
        let text = 'an error that cannot be shown';
        let number;
        let stack;
        try {
            text = NativeString(error);
            // The engine throws null when there is no memory left for an error.
            if (error === null) text = 'null: the script threw null, or ran out of memory';
        } catch { /* keeps the words above */ }
        try {
            if (isObject && typeof error.number === 'number') number = error.number;
        } catch { /* has no number then */ }
        try {
            if (isObject && typeof error.stack === 'string') stack = cut(error.stack);
        } catch { /* has no stack then */ }
        return { text: cut(text), number, stack };
    }

    const tools = { apply, construct, defineProperty, describe, fail, hide, parse, random, random32, stringify, slice, isArray: isPlainArray };
    return tools;
};
