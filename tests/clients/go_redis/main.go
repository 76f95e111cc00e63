// go-redis against the server on the port given: goroutines over one pool, pipelines, scanning, both protocols.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func equal[T comparable](got, want T) {
	if got != want {
		panic(fmt.Sprintf("%v, not %v", got, want))
	}
}

func commands(ctx context.Context, client *redis.Client) {
	must(client.FlushAll(ctx).Result())
	equal(must(client.Set(ctx, "k", "v", time.Minute).Result()), "OK")
	equal(must(client.Get(ctx, "k").Result()), "v")
	equal(must(client.TTL(ctx, "k").Result()) > 0, true)
	pairs := make([]any, 0, 200)
	keys := make([]string, 0, 100)
	for n := range 100 {
		pairs = append(pairs, fmt.Sprint("m:", n), n)
		keys = append(keys, fmt.Sprint("m:", n))
	}
	equal(must(client.MSet(ctx, pairs...).Result()), "OK")
	for n, value := range must(client.MGet(ctx, keys...).Result()) {
		equal(value.(string), fmt.Sprint(n))
	}
	equal(must(client.IncrBy(ctx, "n", 5).Result()), 5)
	equal(must(client.Del(ctx, "k", "n", "nope").Result()), 2)
	_, err := client.Get(ctx, "nope").Result()
	equal(errors.Is(err, redis.Nil), true)
	large := bytes.Repeat([]byte{7}, 300_000)
	must(client.Set(ctx, "large", large, 0).Result())
	equal(bytes.Equal(must(client.Get(ctx, "large").Bytes()), large), true)
	found := map[string]bool{}
	for scan := client.Scan(ctx, 0, "m:*", 10).Iterator(); scan.Next(ctx); {
		found[scan.Val()] = true
	}
	equal(len(found), 100)
}

func pipelines(ctx context.Context, client *redis.Client) {
	replies := must(client.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for n := range 1000 {
			pipe.Set(ctx, fmt.Sprint("p:", n), n, 0)
			pipe.Get(ctx, fmt.Sprint("p:", n))
		}
		return nil
	}))
	for n := range 1000 {
		equal(replies[2*n+1].(*redis.StringCmd).Val(), fmt.Sprint(n))
	}
}

func goroutines(ctx context.Context, client *redis.Client) {
	var group sync.WaitGroup
	for number := range 20 {
		group.Add(1)
		go func() {
			defer group.Done()
			for n := range 100 {
				key, value := fmt.Sprint("g:", number, ":", n), fmt.Sprint(number, "-", n)
				must(client.Set(ctx, key, value, 0).Result())
				equal(must(client.Get(ctx, key).Result()), value)
			}
		}()
	}
	group.Wait()
}

func introspection(ctx context.Context, client *redis.Client) {
	equal(len(must(client.Info(ctx, "everything").Result())) > 1000, true)
	equal(must(client.MemoryUsage(ctx, "large").Result()) > 300_000, true)
	equal(must(client.ObjectEncoding(ctx, "m:1").Result()), "int")
	equal(must(client.Wait(ctx, 1, 20*time.Millisecond).Result()), 0)
	equal(len(must(client.Command(ctx).Result())) > 50, true)
}

func main() {
	ctx := context.Background()
	for _, protocol := range []int{2, 3} {
		client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:" + os.Args[1], Protocol: protocol, MaxRetries: -1})
		commands(ctx, client)
		pipelines(ctx, client)
		goroutines(ctx, client)
		introspection(ctx, client)
		must(0, client.Close())
	}
	fmt.Println("all good")
}
