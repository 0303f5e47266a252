// One scenario over the Go SDK. The connection string comes from ORRERY_CONNECTION_STRING; the last line printed is
// `N passed, M failed` and the exit code is 1 if M is not 0. The steps run in order and build on each other.
//
// The SDK has no read feed and no way to name an absent partition key, so neither is here.
package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"reflect"
	"slices"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"
)

type document map[string]any

// The SDK drops the body of a written document unless asked for it.
var withBody = &azcosmos.ItemOptions{EnableContentResponseOnWrite: true}

type scenario struct {
	client     *azcosmos.Client
	databaseID string
	database   *azcosmos.DatabaseClient
	orders     *azcosmos.ContainerClient
	ranges     *azcosmos.ContainerClient
	changes    *azcosmos.ContainerClient
}

type step struct {
	name string
	run  func(*scenario, context.Context) error
}

var steps = []step{
	{"database is created and read", (*scenario).databaseIsCreatedAndRead},
	{"container is created and read", (*scenario).containerIsCreatedAndRead},
	{"document round-trips", (*scenario).documentRoundTrips},
	{"document is replaced", (*scenario).documentIsReplaced},
	{"document is upserted", (*scenario).documentIsUpserted},
	{"document is patched", (*scenario).documentIsPatched},
	{"a write without body is answered without body", (*scenario).writeWithoutBody},
	{"missing document is 404", (*scenario).missingDocumentIs404},
	{"taken id is 409", (*scenario).takenIDIs409},
	{"stale etag is 412", (*scenario).staleEtagIs412},
	{"batch is applied whole", (*scenario).batchIsAppliedWhole},
	{"failed batch leaves nothing", (*scenario).failedBatchLeavesNothing},
	{"hierarchical key separates documents", (*scenario).hierarchicalKeySeparatesDocuments},
	{"null and other keys differ", (*scenario).nullAndOtherKeysDiffer},
	{"throughput is read and replaced", (*scenario).throughputIsReadAndReplaced},
	{"database is deleted", (*scenario).databaseIsDeleted},
}

func main() {
	client, err := connect(os.Getenv("ORRERY_CONNECTION_STRING"))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	queries, err := readQueries(os.Getenv("ORRERY_CONFORMANCE_QUERIES"))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	// The last step deletes the database.
	last := len(steps) - 1
	steps := slices.Concat(steps[:last], queries.steps(), changeFeedSteps, steps[last:])
	s := &scenario{client: client, databaseID: fmt.Sprintf("conformance-%d", time.Now().UnixNano())}
	passed, failed := 0, 0
	for _, step := range steps {
		if err := play(s, step); err != nil {
			failed++
			fmt.Fprintf(os.Stderr, "FAILED %s: %v\n", step.name, err)
		} else {
			passed++
		}
	}
	fmt.Printf("%d passed, %d failed\n", passed, failed)
	if failed > 0 {
		os.Exit(1)
	}
}

// play runs one step. A step that panics has failed; the others still say something.
func play(s *scenario, step step) (err error) {
	defer func() {
		if cause := recover(); cause != nil {
			err = fmt.Errorf("panic: %v", cause)
		}
	}()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return step.run(s, ctx)
}

// connect trusts any certificate, because the server's is self-signed, and is otherwise the SDK's default.
func connect(connectionString string) (*azcosmos.Client, error) {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig = &tls.Config{InsecureSkipVerify: true}
	return azcosmos.NewClientFromConnectionString(connectionString, &azcosmos.ClientOptions{
		ClientOptions: azcore.ClientOptions{Transport: &http.Client{Transport: transport}},
	})
}

func (s *scenario) databaseIsCreatedAndRead(ctx context.Context) error {
	properties := azcosmos.DatabaseProperties{ID: s.databaseID}
	if _, err := s.client.CreateDatabase(ctx, properties, nil); err != nil {
		return err
	}
	database, err := s.client.NewDatabase(s.databaseID)
	if err != nil {
		return err
	}
	s.database = database
	read, err := database.Read(ctx, nil)
	if err != nil {
		return err
	}
	if err := same("id", read.DatabaseProperties.ID, s.databaseID); err != nil {
		return err
	}
	_, err = s.client.CreateDatabase(ctx, properties, nil)
	return refused(err, http.StatusConflict)
}

func (s *scenario) containerIsCreatedAndRead(ctx context.Context) error {
	throughput := azcosmos.NewManualThroughputProperties(400)
	orders, err := s.createContainer(ctx, "orders", &throughput, "/customer")
	if err != nil {
		return err
	}
	s.orders = orders
	read, err := orders.Read(ctx, nil)
	if err != nil {
		return err
	}
	definition := read.ContainerProperties.PartitionKeyDefinition
	return errors.Join(
		same("paths", definition.Paths, []string{"/customer"}),
		same("kind", definition.Kind, azcosmos.PartitionKeyKindHash),
		same("version", definition.Version, 2))
}

func (s *scenario) documentRoundTrips(ctx context.Context) error {
	written := document{
		"id": "a", "customer": "x", "total": 1.5, "lines": []any{document{"sku": "s"}, nil, true, "日本 🎉"},
		"empty": document{}, "none": nil, "negative": -7, "large": 9007199254740991,
	}
	created, err := s.orders.CreateItem(ctx, key("x"), encoded(written), withBody)
	if err != nil {
		return err
	}
	answered := decoded(created.Value)
	read, err := s.read(ctx, s.orders, "a", key("x"))
	if err != nil {
		return err
	}
	for name, value := range decoded(encoded(written)) {
		if err := same(name, read[name], value); err != nil {
			return err
		}
	}
	if err := same("etag header", string(created.ETag), read["_etag"]); err != nil {
		return err
	}
	return same("document answered and document read", answered, read)
}

func (s *scenario) documentIsReplaced(ctx context.Context) error {
	before, err := s.read(ctx, s.orders, "a", key("x"))
	if err != nil {
		return err
	}
	response, err := s.orders.ReplaceItem(ctx, key("x"), "a", encoded(document{"id": "a", "customer": "x", "total": 2}), withBody)
	if err != nil {
		return err
	}
	replaced := decoded(response.Value)
	if replaced["_etag"] == before["_etag"] {
		return errors.New("a replace changes the etag")
	}
	return errors.Join(
		same("total", replaced["total"], 2.0),
		same("lines", replaced["lines"], nil),
		same("_rid", replaced["_rid"], before["_rid"]))
}

func (s *scenario) documentIsUpserted(ctx context.Context) error {
	created, err := s.orders.UpsertItem(ctx, key("x"), encoded(document{"id": "b", "customer": "x", "total": 1}), withBody)
	if err != nil {
		return err
	}
	replaced, err := s.orders.UpsertItem(ctx, key("x"), encoded(document{"id": "b", "customer": "x", "total": 5}), withBody)
	if err != nil {
		return err
	}
	return errors.Join(
		same("first status", created.RawResponse.StatusCode, http.StatusCreated),
		same("second status", replaced.RawResponse.StatusCode, http.StatusOK),
		same("total", decoded(replaced.Value)["total"], 5.0))
}

func (s *scenario) documentIsPatched(ctx context.Context) error {
	operations := azcosmos.PatchOperations{}
	operations.AppendAdd("/tags", []string{"new"})
	operations.AppendSet("/note", "n")
	operations.AppendIncrement("/total", 10)
	operations.AppendRemove("/note")
	response, err := s.orders.PatchItem(ctx, key("x"), "b", operations, withBody)
	if err != nil {
		return err
	}
	patched := decoded(response.Value)
	err = errors.Join(
		same("tags", patched["tags"], []any{"new"}),
		same("total", patched["total"], 15.0),
		same("note", patched["note"], nil))
	if err != nil {
		return err
	}

	conditional := azcosmos.PatchOperations{}
	conditional.AppendSet("/total", 0)
	conditional.SetCondition("from c where c.total = 16")
	_, err = s.orders.PatchItem(ctx, key("x"), "b", conditional, nil)
	if err := refused(err, http.StatusPreconditionFailed); err != nil {
		return err
	}
	conditional.SetCondition("from c where c.total = 15")
	_, err = s.orders.PatchItem(ctx, key("x"), "b", conditional, nil)
	return err
}

func (s *scenario) writeWithoutBody(ctx context.Context) error {
	response, err := s.orders.UpsertItem(ctx, key("x"), encoded(document{"id": "b", "customer": "x"}), nil)
	if err != nil {
		return err
	}
	read, err := s.read(ctx, s.orders, "b", key("x"))
	if err != nil {
		return err
	}
	return errors.Join(
		same("body size", len(response.Value), 0),
		same("etag", string(response.ETag), read["_etag"]))
}

func (s *scenario) missingDocumentIs404(ctx context.Context) error {
	_, err := s.orders.ReadItem(ctx, key("x"), "missing", nil)
	if err := refused(err, http.StatusNotFound); err != nil {
		return err
	}
	_, err = s.orders.DeleteItem(ctx, key("another key"), "a", nil)
	return refused(err, http.StatusNotFound)
}

func (s *scenario) takenIDIs409(ctx context.Context) error {
	_, err := s.orders.CreateItem(ctx, key("x"), encoded(document{"id": "a", "customer": "x"}), nil)
	return refused(err, http.StatusConflict)
}

func (s *scenario) staleEtagIs412(ctx context.Context) error {
	current, err := s.orders.ReadItem(ctx, key("x"), "a", nil)
	if err != nil {
		return err
	}
	stale := &azcosmos.ItemOptions{IfMatchEtag: to.Ptr(current.ETag)}
	body := encoded(document{"id": "a", "customer": "x", "total": 3})
	if _, err := s.orders.ReplaceItem(ctx, key("x"), "a", body, stale); err != nil {
		return err
	}
	_, err = s.orders.ReplaceItem(ctx, key("x"), "a", body, stale)
	if err := refused(err, http.StatusPreconditionFailed); err != nil {
		return err
	}
	_, err = s.orders.DeleteItem(ctx, key("x"), "a", stale)
	return refused(err, http.StatusPreconditionFailed)
}

func (s *scenario) batchIsAppliedWhole(ctx context.Context) error {
	increment := azcosmos.PatchOperations{}
	increment.AppendIncrement("/total", 1)
	batch := s.orders.NewTransactionalBatch(key("x"))
	batch.CreateItem(encoded(document{"id": "c", "customer": "x", "total": 1}), nil)
	batch.UpsertItem(encoded(document{"id": "d", "customer": "x", "total": 1}), nil)
	batch.PatchItem("c", increment, nil)
	batch.ReadItem("c", nil)
	batch.ReplaceItem("d", encoded(document{"id": "d", "customer": "x", "total": 9}), nil)
	batch.DeleteItem("b", nil)
	options := &azcosmos.TransactionalBatchOptions{EnableContentResponseOnWrite: true}
	response, err := s.orders.ExecuteTransactionalBatch(ctx, batch, options)
	if err != nil {
		return err
	}
	statuses := []int32{201, 201, 200, 200, 200, 204}
	if err := same("statuses", statusesOf(response), statuses); err != nil {
		return err
	}
	after, err := s.read(ctx, s.orders, "d", key("x"))
	if err != nil {
		return err
	}
	return errors.Join(
		same("success", response.Success, true),
		same("total seen inside the batch", decoded(response.OperationResults[3].ResourceBody)["total"], 2.0),
		same("total", after["total"], 9.0))
}

func (s *scenario) failedBatchLeavesNothing(ctx context.Context) error {
	batch := s.orders.NewTransactionalBatch(key("x"))
	batch.CreateItem(encoded(document{"id": "e", "customer": "x"}), nil)
	batch.CreateItem(encoded(document{"id": "a", "customer": "x"}), nil)
	batch.DeleteItem("d", nil)
	response, err := s.orders.ExecuteTransactionalBatch(ctx, batch, nil)
	if err != nil {
		return err
	}
	err = errors.Join(
		same("success", response.Success, false),
		same("statuses", statusesOf(response), []int32{424, 409, 424}))
	if err != nil {
		return err
	}
	_, err = s.orders.ReadItem(ctx, key("x"), "e", nil)
	if err := refused(err, http.StatusNotFound); err != nil {
		return err
	}
	after, err := s.read(ctx, s.orders, "d", key("x"))
	if err != nil {
		return err
	}
	return same("total", after["total"], 9.0)
}

func (s *scenario) hierarchicalKeySeparatesDocuments(ctx context.Context) error {
	events, err := s.createContainer(ctx, "events", nil, "/tenant", "/user", "/day")
	if err != nil {
		return err
	}
	whole := func(day float64) azcosmos.PartitionKey { return key("t").AppendString("u").AppendNumber(day) }
	for _, day := range []float64{1, 2} {
		body := encoded(document{"id": "e", "tenant": "t", "user": "u", "day": day})
		if _, err := events.CreateItem(ctx, whole(day), body, nil); err != nil {
			return err
		}
	}
	_, err = events.ReadItem(ctx, key("t").AppendString("u"), "e", nil)
	if err := refused(err, http.StatusBadRequest); err != nil {
		return err
	}
	if _, err := events.DeleteItem(ctx, whole(1), "e", nil); err != nil {
		return err
	}
	_, err = events.ReadItem(ctx, whole(1), "e", nil)
	if err := refused(err, http.StatusNotFound); err != nil {
		return err
	}
	left, err := s.read(ctx, events, "e", whole(2))
	if err != nil {
		return err
	}
	return same("day", left["day"], 2.0)
}

func (s *scenario) nullAndOtherKeysDiffer(ctx context.Context) error {
	loose, err := s.createContainer(ctx, "loose", nil, "/key")
	if err != nil {
		return err
	}
	keys := map[string]struct {
		value any
		key   azcosmos.PartitionKey
	}{
		"null":  {nil, azcosmos.NullPartitionKey},
		"empty": {"", key("")},
		"false": {false, azcosmos.NewPartitionKeyBool(false)},
		"zero":  {0, azcosmos.NewPartitionKeyNumber(0)},
	}
	for is, each := range keys {
		body := encoded(document{"id": "k", "key": each.value, "is": is})
		if _, err := loose.CreateItem(ctx, each.key, body, nil); err != nil {
			return fmt.Errorf("%s: %w", is, err)
		}
	}
	for is, each := range keys {
		read, err := s.read(ctx, loose, "k", each.key)
		if err != nil {
			return fmt.Errorf("%s: %w", is, err)
		}
		if err := same("document", read["is"], is); err != nil {
			return err
		}
	}
	return nil
}

func (s *scenario) throughputIsReadAndReplaced(ctx context.Context) error {
	read, err := s.orders.ReadThroughput(ctx, nil)
	if err != nil {
		return err
	}
	before, _ := read.ThroughputProperties.ManualThroughput()
	replaced, err := s.orders.ReplaceThroughput(ctx, azcosmos.NewManualThroughputProperties(500), nil)
	if err != nil {
		return err
	}
	answered, _ := replaced.ThroughputProperties.ManualThroughput()
	again, err := s.orders.ReadThroughput(ctx, nil)
	if err != nil {
		return err
	}
	after, _ := again.ThroughputProperties.ManualThroughput()
	return same("throughput", []int32{before, answered, after}, []int32{400, 500, 500})
}

func (s *scenario) databaseIsDeleted(ctx context.Context) error {
	if _, err := s.database.Delete(ctx, nil); err != nil {
		return err
	}
	_, err := s.database.Read(ctx, nil)
	return refused(err, http.StatusNotFound)
}

func (s *scenario) createContainer(
	ctx context.Context, id string, throughput *azcosmos.ThroughputProperties, paths ...string,
) (*azcosmos.ContainerClient, error) {
	properties := azcosmos.ContainerProperties{
		ID:                     id,
		PartitionKeyDefinition: azcosmos.PartitionKeyDefinition{Paths: paths, Version: 2},
	}
	options := &azcosmos.CreateContainerOptions{ThroughputProperties: throughput}
	if _, err := s.database.CreateContainer(ctx, properties, options); err != nil {
		return nil, err
	}
	return s.database.NewContainer(id)
}

func (s *scenario) read(
	ctx context.Context, container *azcosmos.ContainerClient, id string, key azcosmos.PartitionKey,
) (document, error) {
	response, err := container.ReadItem(ctx, key, id, nil)
	if err != nil {
		return nil, err
	}
	return decoded(response.Value), nil
}

func key(value string) azcosmos.PartitionKey {
	return azcosmos.NewPartitionKeyString(value)
}

func statusesOf(response azcosmos.TransactionalBatchResponse) []int32 {
	statuses := []int32{}
	for _, result := range response.OperationResults {
		statuses = append(statuses, result.StatusCode)
	}
	return statuses
}

func encoded(value document) []byte {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	return text
}

// decoded turns text into a document; numbers become float64, as encoding/json has it.
func decoded(text []byte) document {
	var value map[string]any
	if err := json.NewDecoder(bytes.NewReader(text)).Decode(&value); err != nil {
		panic(fmt.Errorf("not a document: %q: %w", text, err))
	}
	return value
}

func same(what string, actual, expected any) error {
	if !reflect.DeepEqual(actual, expected) {
		return fmt.Errorf("%s: expected %v, got %v", what, expected, actual)
	}
	return nil
}

// refused asserts that the call failed with the SDK's own error type and this status.
func refused(err error, status int) error {
	var response *azcore.ResponseError
	if !errors.As(err, &response) {
		return fmt.Errorf("expected a response error with status %d, got %v", status, err)
	}
	return same("status", response.StatusCode, status)
}
