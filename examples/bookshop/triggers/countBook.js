// trigger: post create
// Raises the count that the author of a new book carries, in the transaction that creates the book.
function countBook() {
    const container = getContext().getCollection();
    const book = getContext().getResponse().getBody();
    if (book.type !== 'book') return;
    const authorLink = container.getAltLink() + '/docs/' + book.authorId;
    container.readDocument(authorLink, (error, author) => {
        if (error) throw error;
        author.countOfBooks += 1;
        container.replaceDocument(author._self, author, {etag: author._etag}, (error) => {
            if (error) throw error;
        });
    });
}
