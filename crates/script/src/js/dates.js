// Dates whose clock is the caller's, and whose local time is UTC wherever the server runs. Its
// part is a function of what the sandbox shares, the engine's own dates and the clock; answers `Date`.
//
// This may be loaded when the script is already running: see queries.js.
export let part = function (sandbox, NativeDate, now) {
    part = undefined;

    const { apply, construct, defineProperty, hide, slice } = sandbox;
    const dates = NativeDate.prototype;
    const { floor } = Math;
    const { toUTCString, getTime } = dates;
    const parseNative = NativeDate.parse;
    const { UTC } = NativeDate;
    const isExactTest = RegExp.prototype.exec;
    const ZONED = /Z|UTC|GMT|[ECMP][SD]T|:\d\d(?:[.,]\d+)?\s*[+-]\d/i;
    const DATE_ONLY = /^\s*[+-]?\d{4,6}(?:-\d\d(?:-\d\d)?)?\s*$/;
    const ISO = /^\s*[+-]?\d{4,6}-\d\d-\d\dT/;
    const matches = (pattern, text) => apply(isExactTest, pattern, [text]) !== null;

    function parseDate(value) {
        const text = `${value}`;
        if (matches(ZONED, text) || matches(DATE_ONLY, text)) return parseNative(text);
        return parseNative(matches(ISO, text) ? `${text}Z` : `${text} UTC`);
    }

    function dateText(date) {
        const time = apply(getTime, date, []);
        if (time !== time) return 'Invalid Date';
        const text = apply(toUTCString, date, []);
        return `${slice(text, 0, 3)} ${slice(text, 8, 11)} ${slice(text, 5, 7)} ${slice(text, 12, -13)}`;
    }
    function timeText(date) {
        const time = apply(getTime, date, []);
        if (time !== time) return 'Invalid Date';
        return `${slice(apply(toUTCString, date, []), -12, -4)} GMT+0000 (UTC)`;
    }
    function wholeText(date) {
        const text = dateText(date);
        return text === 'Invalid Date' ? text : `${text} ${timeText(date)}`;
    }

    const symbolToPrimitive = Symbol.toPrimitive;
    function timeOf(value) {
        if (typeof value === 'object' && value !== null) {
            try {
                return apply(getTime, value, []);
            } catch {
                value = typeof value[symbolToPrimitive] === 'function' ? value[symbolToPrimitive]('default') : primitive(value);
            }
        }
        return typeof value === 'string' ? parseDate(value) : +value;
    }
    function primitive(object) {
        const first = object.valueOf();
        return typeof first === 'object' && first !== null ? `${object}` : first;
    }

    const DateOfHost = {
        Date: function (year) {
            if (new.target === undefined) return wholeText(new NativeDate(now()));
            const count = arguments.length;
            const time = count === 0 ? now() : count === 1 ? timeOf(year) : apply(UTC, undefined, arguments);
            return construct(NativeDate, [time], new.target);
        },
    }.Date;
    defineProperty(DateOfHost, 'length', { value: 7 });
    defineProperty(DateOfHost, 'prototype', { value: dates, writable: false });
    hide(dates, 'constructor', DateOfHost);
    hide(DateOfHost, 'now', function now_() { return now(); });
    hide(DateOfHost, 'parse', function parse(text) { return parseDate(text); });
    hide(DateOfHost, 'UTC', UTC);
    const PARTS = { __proto__: null, FullYear: 1, Month: 1, Date: 1, Hours: 1, Minutes: 1, Seconds: 1, Milliseconds: 1 };
    for (const part in PARTS) {
        hide(dates, `get${part}`, dates[`getUTC${part}`]);
        hide(dates, `set${part}`, dates[`setUTC${part}`]);
    }
    hide(dates, 'getDay', dates.getUTCDay);
    hide(dates, 'getYear', function getYear() { return this.getUTCFullYear() - 1900; });
    hide(dates, 'setYear', function setYear(year) {
        const whole = floor(+year);
        return this.setUTCFullYear(whole >= 0 && whole <= 99 ? whole + 1900 : year);
    });
    hide(dates, 'getTimezoneOffset', function getTimezoneOffset() {
        const time = apply(getTime, this, []);
        return time !== time ? time : 0;
    });
    hide(dates, 'toString', function toString() { return wholeText(this); });
    hide(dates, 'toDateString', function toDateString() { return dateText(this); });
    hide(dates, 'toTimeString', function toTimeString() { return timeText(this); });
    hide(dates, 'toLocaleString', function toLocaleString() { return wholeText(this); });
    hide(dates, 'toLocaleDateString', function toLocaleDateString() { return dateText(this); });
    hide(dates, 'toLocaleTimeString', function toLocaleTimeString() { return timeText(this); });
    return DateOfHost;
};
