// Goroutines, a goroutine that never yields, a nil pointer; or an HTTP server.
package main

import (
	"fmt"
	"net/http"
	"os"
	"runtime"
	"time"
)

func main() {
	if len(os.Args) > 1 {
		http.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { fmt.Fprintln(w, "hello from go") })
		fmt.Println("serving")
		fmt.Println(http.ListenAndServe(":80", nil))
		return
	}
	numbers := make(chan int)
	for i := 0; i < 10; i++ {
		go func(i int) { time.Sleep(time.Millisecond); numbers <- i }(i)
	}
	sum := 0
	for i := 0; i < 10; i++ {
		sum += <-numbers
	}
	spins := 0
	go func() {
		for {
			spins++
		}
	}()
	time.Sleep(20 * time.Millisecond)
	runtime.GC()
	fmt.Println("sum", sum)
	func() {
		defer func() { fmt.Println("recovered:", recover() != nil) }()
		var nothing *int
		*nothing = 1
	}()
	os.Exit(3)
}
