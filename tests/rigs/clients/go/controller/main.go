// Command controller makes controller-runtime's everyday calls to the server of $KUBECONFIG, with
// its default content type: the typed client, server-side apply, a status update, CreateOrUpdate,
// and a manager with leader election, For, Owns and an event recorder.
package main

import (
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	applyappsv1 "k8s.io/client-go/applyconfigurations/apps/v1"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	applymetav1 "k8s.io/client-go/applyconfigurations/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

var passed int

func check(what string, err error) {
	if err != nil {
		panic(fmt.Sprintf("%s: %v", what, err))
	}
	passed++
	fmt.Println("ok", what)
}

func main() {
	log.SetLogger(zap.New())
	config, err := clientcmd.BuildConfigFromFlags("", clientcmd.NewDefaultClientConfigLoadingRules().GetDefaultFilename())
	check("config", err)
	ctx := context.Background()
	c, err := client.New(config, client.Options{})
	check("client", err)
	calls(ctx, c)
	manage(ctx, c, ctrl.Options{
		LeaderElection: true, LeaderElectionID: "rig", LeaderElectionNamespace: "default",
		Metrics: server.Options{BindAddress: "0"},
	})
	fmt.Printf("%d calls of controller-runtime\n", passed)
}

func meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, Namespace: "default", Labels: map[string]string{"app": name}}
}

func template(name string) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": name}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "example.invalid/c:1"}}},
	}
}

func replicaSet(name string) *appsv1.ReplicaSet {
	two := int32(2)
	return &appsv1.ReplicaSet{ObjectMeta: meta(name), Spec: appsv1.ReplicaSetSpec{
		Replicas: &two, Template: template(name),
		Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}},
	}}
}

func calls(ctx context.Context, c client.Client) {
	pod := &corev1.Pod{ObjectMeta: meta("pod"), Spec: template("").Spec}
	check("create a Pod", c.Create(ctx, pod))
	set := replicaSet("set")
	check("create a ReplicaSet", c.Create(ctx, set))
	check("await its pods", await(func() bool {
		_ = c.Get(ctx, client.ObjectKeyFromObject(set), set)
		return set.Status.ReadyReplicas == 2
	}))
	pods := &corev1.PodList{}
	check("list its pods", c.List(ctx, pods, client.InNamespace("default"), client.MatchingLabels{"app": "set"}))
	if len(pods.Items) != 2 {
		panic(len(pods.Items))
	}
	ingress := &networkingv1.Ingress{ObjectMeta: meta("ingress")}
	ingress.Spec.DefaultBackend = &networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{Name: "s"}}
	check("create an Ingress", c.Create(ctx, ingress))
	before := pod.DeepCopy()
	pod.Labels["more"] = "x"
	check("merge patch a Pod", c.Patch(ctx, pod, client.MergeFrom(before)))
	check("dry run", c.Create(ctx, replicaSet("dry"), client.DryRunAll))
	if err := c.Get(ctx, client.ObjectKey{Namespace: "default", Name: "dry"}, &appsv1.ReplicaSet{}); !errors.IsNotFound(err) {
		panic(err)
	}
	config := applyappsv1.Deployment("applied", "default").WithSpec(applyappsv1.DeploymentSpec().
		WithReplicas(1).WithSelector(applymetav1.LabelSelector().WithMatchLabels(map[string]string{"app": "a"})).
		WithTemplate(applycorev1.PodTemplateSpec().WithLabels(map[string]string{"app": "a"}).
			WithSpec(applycorev1.PodSpec().WithContainers(applycorev1.Container().WithName("c").WithImage("i")))))
	check("apply a Deployment", c.Apply(ctx, config, client.FieldOwner("rig"), client.ForceOwnership))
	deployment := &appsv1.Deployment{ObjectMeta: meta("applied")}
	check("get it", c.Get(ctx, client.ObjectKeyFromObject(deployment), deployment))
	deployment.Status.Replicas = 1
	check("update its status", c.Status().Update(ctx, deployment))
	for _, want := range []controllerutil.OperationResult{"created", "updated", "unchanged"} {
		own := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: "own", Namespace: "default"}}
		result, err := controllerutil.CreateOrUpdate(ctx, c, own, func() error {
			own.Labels = map[string]string{"app": "own"}
			if want != "created" {
				own.Labels["more"] = "x"
			}
			own.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "own"}}
			own.Spec.Template.Labels = map[string]string{"app": "own"}
			if len(own.Spec.Template.Spec.Containers) == 0 {
				own.Spec.Template = template("own")
			}
			return nil
		})
		if result != want {
			err = fmt.Errorf("%s: %w", result, err)
		}
		check("CreateOrUpdate: "+string(want), err)
	}
	check("delete the Pod", c.Delete(ctx, pod))
	check("delete all of a kind", c.DeleteAllOf(ctx, &networkingv1.Ingress{}, client.InNamespace("default")))
}

// A controller that makes a ReplicaSet for each ConfigMap with a label.
func manage(ctx context.Context, c client.Client, options ctrl.Options) {
	config, err := clientcmd.BuildConfigFromFlags("", clientcmd.NewDefaultClientConfigLoadingRules().GetDefaultFilename())
	check("config", err)
	manager, err := ctrl.NewManager(config, options)
	check("manager", err)
	recorder := manager.GetEventRecorder("rig")
	reconcile := func(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
		owner := &corev1.ConfigMap{}
		if err := manager.GetClient().Get(ctx, request.NamespacedName, owner); err != nil {
			return ctrl.Result{}, client.IgnoreNotFound(err)
		}
		if owner.Labels["app"] != "owner" {
			return ctrl.Result{}, nil
		}
		set := replicaSet("owned")
		_, err := controllerutil.CreateOrUpdate(ctx, manager.GetClient(), set, func() error {
			return controllerutil.SetControllerReference(owner, set, scheme.Scheme)
		})
		recorder.Eventf(owner, nil, corev1.EventTypeNormal, "Reconciled", "Reconcile", "made %s", set.Name)
		return ctrl.Result{}, err
	}
	check("controller", ctrl.NewControllerManagedBy(manager).For(&corev1.ConfigMap{}).
		Owns(&appsv1.ReplicaSet{}).Complete(reconciler(reconcile)))
	running, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- manager.Start(running) }()
	owner := &corev1.ConfigMap{ObjectMeta: meta("owner")}
	check("create an owner", c.Create(ctx, owner))
	set := &appsv1.ReplicaSet{}
	key := client.ObjectKey{Namespace: "default", Name: "owned"}
	check("await what it owns", await(func() bool {
		return c.Get(ctx, key, set) == nil && set.Status.ReadyReplicas == 2
	}))
	events := &corev1.EventList{}
	check("await the event", await(func() bool {
		_ = c.List(ctx, events, client.InNamespace("default"))
		for _, event := range events.Items {
			if event.Reason == "Reconciled" {
				return true
			}
		}
		return false
	}))
	check("delete the owner", c.Delete(ctx, owner))
	check("await the garbage collector", await(func() bool { return errors.IsNotFound(c.Get(ctx, key, set)) }))
	stop()
	check("stop", <-ended)
}

type reconciler func(context.Context, ctrl.Request) (ctrl.Result, error)

func (r reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	return r(ctx, request)
}

// A minute is a limit that only a hang meets.
func await(is func() bool) error {
	for range 600 {
		if is() {
			return nil
		}
		time.Sleep(100 * time.Millisecond)
	}
	return fmt.Errorf("not within a minute")
}
