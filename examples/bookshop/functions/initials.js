// The initials of a name: SELECT udf.initials(c.firstName, c.lastName) AS initials FROM c
function initials(first, last) {
    return (first || '').charAt(0) + (last || '').charAt(0);
}
