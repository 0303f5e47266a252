// Publishes a book: creates it and raises the count that its author carries.
//
// Both documents have the author's id as their partition key, so this is one transaction: an error anywhere, also one
// after the book was created, leaves neither the book nor the count.
function publishBook(book) {
    const container = getContext().getCollection();
    const authorLink = container.getAltLink() + '/docs/' + book.authorId;

    container.readDocument(authorLink, (error, author) => {
        if (error) throw new Error(4040, 'there is no author ' + book.authorId);
        const published = Object.assign({type: 'book'}, book);
        container.createDocument(container.getSelfLink(), published, (error, created) => {
            if (error) throw error;
            console.log('created ' + created.id + '\n');
            // What is wrong with the author is found only now, when the book has been created.
            if (typeof author.countOfBooks !== 'number') {
                throw new Error(4220, 'the author ' + author.id + ' has no count of books');
            }
            author.countOfBooks += 1;
            container.replaceDocument(author._self, author, {etag: author._etag}, (error) => {
                if (error) throw error;
                console.log('counted ' + author.countOfBooks + '\n');
                getContext().getResponse().setBody(created);
            });
        });
    });
}
