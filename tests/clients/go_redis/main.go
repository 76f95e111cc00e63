// go-redis against the server on the port given: goroutines over one pool, pipelines, scanning, both protocols, collections,
// transactions, blocking commands, channels.
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

func collections(ctx context.Context, client *redis.Client) {
	equal(must(client.HSet(ctx, "h", "a", 1, "b", "two").Result()), 2)
	equal(must(client.HGetAll(ctx, "h").Result())["b"], "two")
	equal(must(client.RPush(ctx, "l", 1, 2, 3).Result()), 3)
	equal(fmt.Sprint(must(client.LRange(ctx, "l", 0, -1).Result())), "[1 2 3]")
	equal(must(client.LMove(ctx, "l", "l2", "LEFT", "RIGHT").Result()), "1")
	equal(must(client.SAdd(ctx, "s", "x", "y", "x").Result()), 2)
	equal(must(client.SAdd(ctx, "s2", "y", "z").Result()), 2)
	equal(fmt.Sprint(must(client.SInter(ctx, "s", "s2").Result())), "[y]")
	equal(must(client.ZAdd(ctx, "z", redis.Z{Score: 1, Member: "one"}, redis.Z{Score: 2.5, Member: "more"}).Result()), 2)
	equal(fmt.Sprint(must(client.ZRangeWithScores(ctx, "z", 0, -1).Result())), "[{1 one} {2.5 more}]")
	equal(must(client.SetBit(ctx, "bits", 7, 1).Result()), 0)
	for n := range 700 {
		must(client.SAdd(ctx, "many", fmt.Sprint("m", n)).Result())
	}
	found := map[string]bool{}
	for scan := client.SScan(ctx, "many", 0, "", 50).Iterator(); scan.Next(ctx); {
		found[scan.Val()] = true
	}
	equal(len(found), 700)
}

func transactions(ctx context.Context, client *redis.Client) {
	replies := must(client.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
		pipe.Set(ctx, "t1", 1, 0)
		pipe.Incr(ctx, "t1")
		pipe.LPush(ctx, "t2", "x")
		return nil
	}))
	equal(replies[1].(*redis.IntCmd).Val(), 2)
	var group sync.WaitGroup
	for range 5 {
		group.Add(1)
		go func() {
			defer group.Done()
			for done := 0; done < 10; {
				err := client.Watch(ctx, func(tx *redis.Tx) error {
					value := must(tx.Get(ctx, "t1").Int())
					_, err := tx.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
						pipe.Set(ctx, "t1", value+1, 0)
						pipe.Incr(ctx, "t3")
						return nil
					})
					return err
				}, "t1", "t3")
				if err == nil {
					done++
				} else if !errors.Is(err, redis.TxFailedErr) {
					panic(err)
				}
			}
		}()
	}
	group.Wait()
	equal(must(client.Get(ctx, "t1").Result()), "52")
	equal(must(client.Get(ctx, "t3").Result()), "50")
}

func blocking(ctx context.Context, client *redis.Client) {
	popped := make(chan []string)
	go func() { popped <- must(client.BLPop(ctx, 5*time.Second, "none", "queue").Result()) }()
	time.Sleep(50 * time.Millisecond)
	equal(must(client.RPush(ctx, "queue", "job").Result()), 1)
	equal(fmt.Sprint(<-popped), "[queue job]")
	_, err := client.BLPop(ctx, time.Second, "queue").Result()
	equal(errors.Is(err, redis.Nil), true)
}

func channels(ctx context.Context, client *redis.Client) {
	subscriber := client.Subscribe(ctx, "news", "weather")
	for range 2 {
		must(subscriber.ReceiveTimeout(ctx, 5*time.Second))
	}
	equal(must(client.Publish(ctx, "news", "hello").Result()), 1)
	equal(must(client.Publish(ctx, "weather", "rain").Result()), 1)
	heard := map[string]string{}
	for range 2 {
		message := must(subscriber.ReceiveMessage(ctx))
		heard[message.Channel] = message.Payload
	}
	equal(heard["news"], "hello")
	equal(heard["weather"], "rain")
	must(0, subscriber.Close())
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
		collections(ctx, client)
		transactions(ctx, client)
		blocking(ctx, client)
		channels(ctx, client)
		introspection(ctx, client)
		must(0, client.Close())
	}
	fmt.Println("all good")
}
