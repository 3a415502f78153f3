// Plays the kubelets of two nodes: says of every pod that it runs and is ready,
// and removes pods that are being deleted. There are no containers, but what
// tests ask of them is acted out: `sleep` of a postStart or preStop hook, the
// initial delay of a readiness probe, readiness gates, and in pods that are
// never restarted `sleep N` and `exit N`. Pods with an image or a command that
// the tests mean not to exist stay Pending. The environment variable START is
// what a container takes until it is ready, such as 3s; it is 0 by default.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"

	coordination "k8s.io/api/coordination/v1"
	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"
)

var ctx = context.Background()

func main() {
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	must(err)
	config.QPS = -1
	client := kubernetes.NewForConfigOrDie(config)
	nodes := []string{"node-1", "node-2"}
	for _, name := range nodes {
		must(register(client, name))
	}

	// A resync tries again what a conflict or an absent namespace has rejected.
	factory := informers.NewSharedInformerFactory(client, time.Second)
	_, err = factory.Core().V1().Pods().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(pod any) { tell(client, pod.(*core.Pod)) },
		UpdateFunc: func(_, pod any) { tell(client, pod.(*core.Pod)) },
	})
	must(err)
	factory.Start(ctx.Done())
	for {
		for _, name := range nodes {
			if err := renew(client, name); err != nil {
				log.Printf("lease of %s: %v", name, err)
			}
		}
		time.Sleep(5 * time.Second)
	}
}

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func register(client kubernetes.Interface, name string) error {
	room := core.ResourceList{
		core.ResourceCPU:              resource.MustParse("64"),
		core.ResourceMemory:           resource.MustParse("256Gi"),
		core.ResourceEphemeralStorage: resource.MustParse("256Gi"),
		core.ResourcePods:             resource.MustParse("500"),
	}
	_, err := client.CoreV1().Nodes().Create(ctx, &core.Node{
		ObjectMeta: meta.ObjectMeta{Name: name, Labels: map[string]string{
			"kubernetes.io/hostname": name, "kubernetes.io/os": "linux",
		}},
		Status: core.NodeStatus{
			Capacity:    room,
			Allocatable: room,
			Addresses:   []core.NodeAddress{{Type: core.NodeInternalIP, Address: "127.0.0.1"}},
			Conditions: []core.NodeCondition{{
				Type:   core.NodeReady,
				Status: core.ConditionTrue,
				Reason: "KubeletReady",
			}},
		},
	}, meta.CreateOptions{})
	return err
}

func renew(client kubernetes.Interface, name string) error {
	leases := client.CoordinationV1().Leases(core.NamespaceNodeLease)
	lease, err := leases.Get(ctx, name, meta.GetOptions{})
	if errors.IsNotFound(err) {
		lease, err = leases.Create(ctx, &coordination.Lease{
			ObjectMeta: meta.ObjectMeta{Name: name},
			Spec: coordination.LeaseSpec{
				HolderIdentity:       &name,
				LeaseDurationSeconds: ptr.To(int32(40)),
			},
		}, meta.CreateOptions{})
	}
	if err != nil {
		return err
	}
	lease.Spec.RenewTime = ptr.To(meta.NowMicro())
	_, err = leases.Update(ctx, lease, meta.UpdateOptions{})
	return err
}

func tell(client kubernetes.Interface, pod *core.Pod) {
	pods := client.CoreV1().Pods(pod.Namespace)
	var err error
	switch {
	case pod.Spec.NodeName == "":
	case pod.DeletionTimestamp != nil:
		grace := time.Duration(ptr.Deref(pod.DeletionGracePeriodSeconds, 0)) * time.Second
		if time.Since(pod.DeletionTimestamp.Add(-grace)) < min(grace, preStop(pod)) {
			return
		}
		err = pods.Delete(ctx, pod.Name, meta.DeleteOptions{
			GracePeriodSeconds: ptr.To(int64(0)),
			Preconditions:      meta.NewUIDPreconditions(string(pod.UID)),
		})
	case pod.Status.Phase == core.PodSucceeded || pod.Status.Phase == core.PodFailed:
	case !absent.MatchString(pod.Spec.Containers[0].Image + words(pod.Spec.Containers[0])):
		now := pod.DeepCopy()
		run(now)
		if !equality.Semantic.DeepEqual(pod.Status, now.Status) {
			_, err = pods.UpdateStatus(ctx, now, meta.UpdateOptions{})
		}
	}
	if err != nil && !errors.IsNotFound(err) && !errors.IsConflict(err) {
		log.Printf("pod %s/%s: %v", pod.Namespace, pod.Name, err)
	}
}

var (
	absent    = regexp.MustCompile(`^\S*(:404|[:-]error|nonexistent\S*)( |$)| /bad-command`)
	sleeps    = regexp.MustCompile(`\bsleep (\d+)`)
	exits     = regexp.MustCompile(`\bexit (\d+)`)
	start, _  = time.ParseDuration(os.Getenv("START"))
	addresses int
)

// words is the command line of a container, after a blank.
func words(container core.Container) string {
	return " " + strings.Join(append(container.Command, container.Args...), " ")
}

func number(pattern *regexp.Regexp, text string) int {
	if found := pattern.FindStringSubmatch(text); found != nil {
		value, _ := strconv.Atoi(found[1])
		return value
	}
	return 0
}

func asleep(text string) time.Duration {
	return time.Duration(number(sleeps, text)) * time.Second
}

func hook(handler *core.LifecycleHandler) time.Duration {
	if handler == nil || handler.Exec == nil {
		return 0
	}
	return asleep(strings.Join(handler.Exec.Command, " "))
}

func preStop(pod *core.Pod) time.Duration {
	var longest time.Duration
	for _, container := range pod.Spec.Containers {
		if container.Lifecycle != nil {
			longest = max(longest, hook(container.Lifecycle.PreStop))
		}
	}
	return longest
}

func untilReady(container core.Container) time.Duration {
	delay := start
	if container.Lifecycle != nil {
		delay += hook(container.Lifecycle.PostStart)
	}
	if probe := container.ReadinessProbe; probe != nil {
		delay += time.Duration(probe.InitialDelaySeconds) * time.Second
	}
	return delay
}

// run brings the status of a pod to what it is now.
func run(pod *core.Pod) {
	status := &pod.Status
	if status.StartTime == nil {
		addresses++
		status.Phase = core.PodRunning
		status.StartTime = ptr.To(meta.Now())
		status.HostIP = "127.0.0.1"
		status.HostIPs = []core.HostIP{{IP: status.HostIP}}
		status.PodIP = fmt.Sprintf("10.%d.%d.%d", addresses>>16&255, addresses>>8&255, addresses&255)
		status.PodIPs = []core.PodIP{{IP: status.PodIP}}
	}
	since := time.Since(status.StartTime.Time)
	first := pod.Spec.Containers[0]
	if pod.Spec.RestartPolicy == core.RestartPolicyNever && since >= asleep(words(first)) {
		end(status, first, int32(number(exits, words(first))))
		return
	}
	ready := true
	status.ContainerStatuses = nil
	for _, container := range pod.Spec.Containers {
		started := since >= untilReady(container)
		ready = ready && started
		status.ContainerStatuses = append(status.ContainerStatuses, core.ContainerStatus{
			Name:    container.Name,
			Image:   container.Image,
			Ready:   started,
			Started: &started,
			State: core.ContainerState{
				Running: &core.ContainerStateRunning{StartedAt: *status.StartTime},
			},
		})
	}
	condition(status, core.PodInitialized, true)
	condition(status, core.ContainersReady, ready)
	for _, gate := range pod.Spec.ReadinessGates {
		ready = ready && is(status, gate.ConditionType)
	}
	condition(status, core.PodReady, ready)
}

func end(status *core.PodStatus, container core.Container, code int32) {
	status.Phase = core.PodSucceeded
	if code != 0 {
		status.Phase = core.PodFailed
	}
	condition(status, core.ContainersReady, false)
	condition(status, core.PodReady, false)
	status.ContainerStatuses = []core.ContainerStatus{{
		Name:  container.Name,
		Image: container.Image,
		State: core.ContainerState{Terminated: &core.ContainerStateTerminated{
			ExitCode: code, StartedAt: *status.StartTime, FinishedAt: meta.Now(),
		}},
	}}
}

func is(status *core.PodStatus, kind core.PodConditionType) bool {
	for _, condition := range status.Conditions {
		if condition.Type == kind {
			return condition.Status == core.ConditionTrue
		}
	}
	return false
}

func condition(status *core.PodStatus, kind core.PodConditionType, holds bool) {
	wanted := core.PodCondition{Type: kind, Status: core.ConditionFalse, LastTransitionTime: meta.Now()}
	if holds {
		wanted.Status = core.ConditionTrue
	}
	for i, condition := range status.Conditions {
		if condition.Type == kind {
			if condition.Status != wanted.Status {
				status.Conditions[i] = wanted
			}
			return
		}
	}
	status.Conditions = append(status.Conditions, wanted)
}
