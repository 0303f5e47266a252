package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"
)

// The change feed through the Go SDK: latest versions of a container of several ranges, by partition key, by feed range
// and whole, from the beginning, from a time and resumed. The SDK knows no other mode.
var changeFeedSteps = []step{
	{"change feed: container with several ranges is filled", (*scenario).changeFeedIsFilled},
	{"change feed: a partition is read and resumed", (*scenario).changeFeedOfAPartition},
	{"change feed: the whole container is read", (*scenario).changeFeedOfTheContainer},
	{"change feed: a reader may start with a time", (*scenario).changeFeedFromATime},
}

func (s *scenario) changeFeedIsFilled(ctx context.Context) error {
	throughput := azcosmos.NewManualThroughputProperties(20_000)
	_, err := s.database.CreateContainer(ctx, azcosmos.ContainerProperties{
		ID:                     "changes",
		PartitionKeyDefinition: azcosmos.PartitionKeyDefinition{Paths: []string{"/pk"}},
	}, &azcosmos.CreateContainerOptions{ThroughputProperties: &throughput})
	if err != nil {
		return err
	}
	if s.changes, err = s.database.NewContainer("changes"); err != nil {
		return err
	}
	for n := range 12 {
		if err := s.change(ctx, fmt.Sprint(n), fmt.Sprintf("p%d", n%4)); err != nil {
			return err
		}
	}
	if err := s.change(ctx, "0", "p0"); err != nil {
		return err
	}
	_, err = s.changes.DeleteItem(ctx, azcosmos.NewPartitionKeyString("p0"), "4", nil)
	return err
}

// The SDK wants a feed range even where a partition key is given; the range that does not hold it has no changes.
func (s *scenario) changeFeedOfAPartition(ctx context.Context) error {
	ranges, err := s.changes.ReadFeedRanges(ctx, nil)
	if err != nil {
		return err
	}
	key := azcosmos.NewPartitionKeyString("p0")
	var before, after, ends []string
	for _, part := range ranges {
		options := azcosmos.ChangeFeedOptions{FeedRange: &part, PartitionKey: &key, MaxItemCount: 1}
		ids, end, err := s.readChanges(ctx, options)
		if err != nil {
			return err
		}
		before, ends = append(before, ids...), append(ends, end)
	}
	if !slices.Equal(before, []string{"8", "0"}) {
		return fmt.Errorf("ids: %v", before)
	}
	if err := s.change(ctx, "8", "p0"); err != nil {
		return err
	}
	for _, end := range ends {
		options := azcosmos.ChangeFeedOptions{PartitionKey: &key, Continuation: to.Ptr(end)}
		ids, _, err := s.readChanges(ctx, options)
		if err != nil {
			return err
		}
		after = append(after, ids...)
	}
	if !slices.Equal(after, []string{"8"}) {
		return fmt.Errorf("ids after the continuation: %v", after)
	}
	return nil
}

func (s *scenario) changeFeedOfTheContainer(ctx context.Context) error {
	ranges, err := s.changes.ReadFeedRanges(ctx, nil)
	if err != nil {
		return err
	}
	if len(ranges) < 2 {
		return fmt.Errorf("%d ranges", len(ranges))
	}
	var all []string
	for _, part := range ranges {
		ids, _, err := s.readChanges(ctx, azcosmos.ChangeFeedOptions{FeedRange: &part, MaxItemCount: 2})
		if err != nil {
			return err
		}
		all = append(all, ids...)
	}
	slices.Sort(all)
	expected := []string{"0", "1", "10", "11", "2", "3", "5", "6", "7", "8", "9"}
	if !slices.Equal(all, expected) {
		return fmt.Errorf("ids: %v", all)
	}
	return nil
}

func (s *scenario) changeFeedFromATime(ctx context.Context) error {
	time.Sleep(1_100 * time.Millisecond)
	start := time.Now()
	time.Sleep(1_100 * time.Millisecond)
	if err := s.change(ctx, "late", "p2"); err != nil {
		return err
	}
	ranges, err := s.changes.ReadFeedRanges(ctx, nil)
	if err != nil {
		return err
	}
	var late []string
	for _, part := range ranges {
		ids, _, err := s.readChanges(ctx, azcosmos.ChangeFeedOptions{FeedRange: &part, StartFrom: &start})
		if err != nil {
			return err
		}
		late = append(late, ids...)
	}
	if !slices.Equal(late, []string{"late"}) {
		return fmt.Errorf("ids: %v", late)
	}
	return nil
}

func (s *scenario) change(ctx context.Context, id, key string) error {
	body, err := json.Marshal(document{"id": id, "pk": key})
	if err != nil {
		return err
	}
	_, err = s.changes.UpsertItem(ctx, azcosmos.NewPartitionKeyString(key), body, nil)
	return err
}

// readChanges gives the ids of all changes until there are no more, and the continuation after them.
func (s *scenario) readChanges(ctx context.Context, options azcosmos.ChangeFeedOptions) ([]string, string, error) {
	var ids []string
	for {
		page, err := s.changes.ReadChangeFeed(ctx, &options)
		if err != nil {
			return nil, "", err
		}
		if page.RawResponse.StatusCode == http.StatusNotModified || page.Count == 0 {
			return ids, page.ContinuationToken, nil
		}
		for _, item := range page.Items {
			var change struct {
				ID  string `json:"id"`
				LSN int64  `json:"_lsn"`
			}
			if err := json.Unmarshal(item, &change); err != nil {
				return nil, "", err
			}
			if change.LSN <= 0 {
				return nil, "", fmt.Errorf("document %s has no _lsn", change.ID)
			}
			ids = append(ids, change.ID)
		}
		options.Continuation = to.Ptr(page.ContinuationToken)
	}
}
