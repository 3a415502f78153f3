package devserver

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// ForTest starts a server that ends with the test. Tests that share one call Start in TestMain.
func ForTest(t testing.TB, arguments ...string) *Server {
	t.Helper()
	server, err := Start(arguments...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Stop)
	return server
}

// Namespace creates a namespace and deletes it after the test. If the test fails, the test's log gets what
// the server printed since.
func (s *Server) Namespace(t testing.TB) string {
	t.Helper()
	since := len(s.Log())
	body := s.request(t, "POST", "/api/v1/namespaces", "application/json",
		map[string]any{"metadata": map[string]any{"generateName": "test-"}})
	var created struct{ Metadata struct{ Name string } }
	if err := json.Unmarshal(body, &created); err != nil {
		t.Fatal(err)
	}
	name := created.Metadata.Name
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("log of the dev server:\n%s", s.Log()[since:])
		}
		s.request(t, "DELETE", "/api/v1/namespaces/"+name, "application/json", map[string]any{})
	})
	return name
}

// SetFate controls how the nodes treat a pod: unscheduled, pending, rejected, failed, unknown, crash-loop or
// unready; the empty fate is that of a healthy pod.
func (s *Server) SetFate(t testing.TB, namespace, pod, fate string) {
	t.Helper()
	annotations := map[string]any{Annotation + "fate": fate}
	s.request(t, "PATCH", "/api/v1/namespaces/"+namespace+"/pods/"+pod, "application/merge-patch+json",
		map[string]any{"metadata": map[string]any{"annotations": annotations}})
}

// WaitUntil calls check until it returns true, and fails the test after a minute.
func WaitUntil(t testing.TB, what string, check func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !check(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %s: %s", patience, what)
		}
	}
}

func (s *Server) request(t testing.TB, method, path, contentType string, body any) []byte {
	t.Helper()
	text, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	request, err := http.NewRequest(method, s.URL+path, strings.NewReader(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", contentType)
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	read, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode >= 300 {
		t.Fatalf("%s %s: %s %v\n%s", method, path, answer.Status, err, read)
	}
	return read
}
