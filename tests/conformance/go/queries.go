package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"sort"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"
)

// The queries of queries.json over a container of several ranges. This SDK never plans or merges: it sends a query as it
// is, so what comes back is the server's own answer, in pages of any size and resumed from continuations.

// queryScript is what the file holds.
type queryScript struct {
	Throughput int32
	Container  azcosmos.ContainerProperties
	Documents  []document
	Queries    []query
}

// query is one query with the rows it must give, or their number where it may give any, or the status it is refused with.
type query struct {
	Name       string
	Query      string
	Parameters []azcosmos.QueryParameter
	Ordered    bool
	Rows       []any
	Count      int
	Status     int
}

func readQueries(path string) (*queryScript, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	script := &queryScript{}
	return script, json.Unmarshal(text, script)
}

// steps are the steps that make the container, fill it and ask every query.
func (script *queryScript) steps() []step {
	steps := []step{{"container with several ranges is filled", script.fill}}
	for _, each := range script.Queries {
		steps = append(steps, step{"query: " + each.Name, func(s *scenario, ctx context.Context) error {
			return each.askEveryWay(ctx, s.ranges)
		}})
	}
	return steps
}

func (script *queryScript) fill(s *scenario, ctx context.Context) error {
	throughput := azcosmos.NewManualThroughputProperties(script.Throughput)
	options := &azcosmos.CreateContainerOptions{ThroughputProperties: &throughput}
	if _, err := s.database.CreateContainer(ctx, script.Container, options); err != nil {
		return err
	}
	container, err := s.database.NewContainer(script.Container.ID)
	if err != nil {
		return err
	}
	s.ranges = container
	for _, each := range script.Documents {
		if _, err := container.CreateItem(ctx, key(each["pk"].(string)), encoded(each), nil); err != nil {
			return err
		}
	}
	ranges, err := container.ReadFeedRanges(ctx, nil)
	if err != nil {
		return err
	}
	return same("has several ranges", len(ranges) >= 3, true)
}

func (q query) askEveryWay(ctx context.Context, container *azcosmos.ContainerClient) error {
	if q.Status != 0 {
		_, err := q.all(ctx, container, -1)
		return refused(err, q.Status)
	}
	for _, size := range []int32{-1, 1, 4} {
		rows, err := q.all(ctx, container, size)
		if err := q.check(rows, err); err != nil {
			return fmt.Errorf("in pages of %d: %w", size, err)
		}
	}
	rows, err := q.resumed(ctx, container, 3)
	if err := q.check(rows, err); err != nil {
		return fmt.Errorf("resumed: %w", err)
	}
	forbidden := false
	options := &azcosmos.QueryOptions{EnableCrossPartitionQuery: &forbidden, QueryParameters: q.Parameters}
	_, err = container.NewQueryItemsPager(q.Query, azcosmos.NewPartitionKey(), options).NextPage(ctx)
	if strings.Contains(q.Query, "c.pk =") {
		return err // It names its partition, and so crosses none.
	}
	return refused(err, http.StatusBadRequest)
}

// all are all rows, page by page.
func (q query) all(ctx context.Context, container *azcosmos.ContainerClient, size int32) ([]any, error) {
	rows := []any{}
	pages := container.NewQueryItemsPager(q.Query, azcosmos.NewPartitionKey(), q.options(size, nil))
	for pages.More() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, err
		}
		if size > 0 && len(page.Items) > int(size) {
			return nil, fmt.Errorf("the page has %d rows", len(page.Items))
		}
		rows = append(rows, rowsOf(page)...)
	}
	return rows, nil
}

// resumed are all rows, with a new pager after every page.
func (q query) resumed(ctx context.Context, container *azcosmos.ContainerClient, size int32) ([]any, error) {
	rows := []any{}
	var continuation *string
	for {
		options := q.options(size, continuation)
		page, err := container.NewQueryItemsPager(q.Query, azcosmos.NewPartitionKey(), options).NextPage(ctx)
		if err != nil {
			return nil, err
		}
		rows = append(rows, rowsOf(page)...)
		if continuation = page.ContinuationToken; continuation == nil {
			return rows, nil
		}
	}
}

func (q query) options(size int32, continuation *string) *azcosmos.QueryOptions {
	return &azcosmos.QueryOptions{PageSizeHint: size, QueryParameters: q.Parameters, ContinuationToken: continuation}
}

func rowsOf(page azcosmos.QueryItemsResponse) []any {
	rows := []any{}
	for _, item := range page.Items {
		var row any
		if err := json.Unmarshal(item, &row); err != nil {
			panic(fmt.Errorf("not a row: %q: %w", item, err))
		}
		rows = append(rows, row)
	}
	return rows
}

func (q query) check(rows []any, err error) error {
	if err != nil {
		return err
	}
	if q.Rows == nil {
		return same("number of rows", len(rows), q.Count)
	}
	actual, expected := canonical(rows), canonical(q.Rows)
	if !q.Ordered {
		sort.Strings(actual)
		sort.Strings(expected)
	}
	return same("rows", actual, expected)
}

// canonical are texts that are the same for equal values; encoding/json writes members sorted by name.
func canonical(rows []any) []string {
	texts := []string{}
	for _, row := range rows {
		text, err := json.Marshal(row)
		if err != nil {
			panic(err)
		}
		texts = append(texts, string(text))
	}
	return texts
}
