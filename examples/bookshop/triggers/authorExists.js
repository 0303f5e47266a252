// trigger: pre create
// Refuses a book whose author does not exist.
function authorExists() {
    const container = getContext().getCollection();
    const book = getContext().getRequest().getBody();
    if (book.type !== 'book') return;
    const authorLink = container.getAltLink() + '/docs/' + book.authorId;
    container.readDocument(authorLink, (error) => {
        if (error) throw new Error(4040, 'there is no author ' + book.authorId);
    });
}
