// A REST service that keeps notes in memory: GET /notes lists them, POST /notes adds one,
// GET /notes/N gives one. SIGTERM, as `tare stop` sends it, ends it after the last answer.
// PORT in the environment is its port, 80 if absent.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

type note struct {
	Number int    `json:"number"`
	Text   string `json:"text"`
}

type notes struct {
	lock sync.Mutex
	all  []note
}

const longestBody = 64 << 10

func (n *notes) list(w http.ResponseWriter, r *http.Request) {
	switch r.Method {
	case http.MethodGet:
		n.lock.Lock()
		defer n.lock.Unlock()
		answer(w, http.StatusOK, n.all)
	case http.MethodPost:
		var new note
		body := http.MaxBytesReader(w, r.Body, longestBody)
		if err := json.NewDecoder(body).Decode(&new); err != nil || new.Text == "" {
			http.Error(w, `send {"text": "..."}`, http.StatusBadRequest)
			return
		}
		n.lock.Lock()
		defer n.lock.Unlock()
		new.Number = len(n.all) + 1
		n.all = append(n.all, new)
		answer(w, http.StatusCreated, new)
	default:
		http.Error(w, "use GET or POST", http.StatusMethodNotAllowed)
	}
}

func (n *notes) one(w http.ResponseWriter, r *http.Request) {
	number, err := strconv.Atoi(strings.TrimPrefix(r.URL.Path, "/notes/"))
	n.lock.Lock()
	defer n.lock.Unlock()
	if err != nil || number < 1 || number > len(n.all) {
		http.NotFound(w, r)
		return
	}
	answer(w, http.StatusOK, n.all[number-1])
}

func answer(w http.ResponseWriter, status int, value any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	if err := json.NewEncoder(w).Encode(value); err != nil {
		log.Print(err)
	}
}

func main() {
	kept := &notes{all: []note{}}
	mux := http.NewServeMux()
	mux.HandleFunc("/notes", kept.list)
	mux.HandleFunc("/notes/", kept.one)
	port := os.Getenv("PORT")
	if port == "" {
		port = "80"
	}
	server := &http.Server{Addr: ":" + port, Handler: mux, ReadHeaderTimeout: 10 * time.Second}

	stop, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer cancel()
	go func() {
		if err := server.ListenAndServe(); err != http.ErrServerClosed {
			log.Fatal(err)
		}
	}()
	<-stop.Done()
	deadline, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	if err := server.Shutdown(deadline); err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%d notes\n", len(kept.all))
}
